//! The subcommands, one file each.

mod apply;
mod cat;
mod chattr;
mod check;
mod chmod;
mod chown;
mod cp;
mod cp_checks;
mod defrag;
mod defrag_online;
mod df;
mod diff;
mod disk;
mod doctor;
mod enter;
mod export;
mod generate;
mod import;
mod info;
mod inspect;
mod ln;
mod ls;
mod lsattr;
mod man;
mod map;
mod mkdir;
pub mod mkfs;
mod mkfs_options;
mod mkfs_report;
mod mkfs_size;
mod mkfs_sources;
pub mod mount;
mod mv;
pub mod partitions;
mod push;
mod remount;
mod repair;
mod rescue;
mod resize;
mod rm;
mod shell;
mod stat;
mod status;
mod sync;
mod top;
mod touch;
mod tree;
mod trim;
pub mod tune;
mod umount;
pub mod undo;
mod xattr;

use anyhow::Result;
use clap::Subcommand;

#[derive(Subcommand, Debug)]
pub enum Command {
    Mkfs(Box<mkfs::Args>),
    Disk(disk::Args),
    Import(import::Args),
    Export(export::Args),
    Info(info::Args),
    Df(df::Args),
    Map(map::Args),
    Check(check::Args),
    Repair(repair::Args),
    Undo(undo::Args),
    Rescue(rescue::Args),
    Tune(Box<tune::Args>),
    Trim(trim::Args),
    Defrag(defrag::Args),
    Resize(resize::Args),
    Inspect(inspect::Args),
    Diff(diff::Args),
    Ls(ls::Args),
    Lsattr(lsattr::Args),
    Tree(tree::Args),
    Cat(cat::Args),
    Stat(stat::Args),
    Cp(cp::Args),
    Mv(mv::Args),
    Rm(rm::Args),
    Mkdir(mkdir::Args),
    Ln(ln::Args),
    Touch(touch::Args),
    Chattr(chattr::Args),
    Chmod(chmod::Args),
    Chown(chown::Args),
    Getfattr(xattr::GetArgs),
    Setfattr(xattr::SetArgs),
    Mount(mount::Args),
    Umount(umount::Args),
    Shell(shell::Args),
    Status(status::Args),
    Top(top::Args),
    Sync(sync::Args),
    #[command(name = "enter-image")]
    Enter(enter::Args),
    #[command(name = "keep-mount")]
    Keep(mount::KeepArgs),
    Apply(apply::Args),
    Push(push::PushArgs),
    Pull(push::PullArgs),
    Doctor(doctor::Args),
    Completions(generate::CompletionsArgs),
    Man(man::Args),
}

/// Runs a subcommand.
pub fn run(command: Command) -> Result<()> {
    match command {
        Command::Mkfs(args) => mkfs::run(*args),
        Command::Disk(args) => disk::run(&args),
        Command::Import(args) => import::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Info(args) => info::run(&args),
        Command::Map(args) => map::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Repair(args) => repair::run(&args),
        Command::Undo(args) => undo::run(&args),
        Command::Rescue(args) => rescue::run(&args),
        Command::Tune(args) => tune::run(&args),
        Command::Trim(args) => trim::run(&args),
        Command::Defrag(args) => defrag::run(&args),
        Command::Resize(args) => resize::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Df(args) => df::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Ls(args) => ls::run(&args),
        Command::Tree(args) => tree::run(&args),
        Command::Cat(args) => cat::run(&args),
        Command::Stat(args) => stat::run(&args),
        Command::Cp(args) => cp::run(&args),
        Command::Mv(args) => mv::run(&args),
        Command::Rm(args) => rm::run(&args),
        Command::Mkdir(args) => mkdir::run(&args),
        Command::Ln(args) => ln::run(&args),
        Command::Touch(args) => touch::run(&args),
        Command::Chattr(args) => chattr::run(&args),
        Command::Lsattr(args) => lsattr::run(&args),
        Command::Chmod(args) => chmod::run(&args),
        Command::Chown(args) => chown::run(&args),
        Command::Getfattr(args) => xattr::get(&args),
        Command::Setfattr(args) => xattr::set(&args),
        Command::Mount(args) => mount::run(&args),
        Command::Umount(args) => umount::run(&args),
        Command::Shell(args) => shell::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Sync(args) => sync::run(&args),
        Command::Enter(args) => enter::run(&args),
        Command::Keep(args) => mount::keep(&args),
        Command::Apply(args) => apply::run(&args),
        Command::Push(args) => push::push(&args),
        Command::Pull(args) => push::pull(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Completions(args) => generate::completions(&args),
        Command::Man(args) => man::run(&args),
    }
}
