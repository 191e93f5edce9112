//! The documents keep their word: every command in them runs, prints what they show, and every link leads somewhere.
//!
//! Commands stand in `console` blocks, behind `$ `; the lines below one are what it prints, `...` is any number of lines. The
//! blocks of one document run in their order, in one directory that is also the home directory, as root and as an ordinary
//! user. trycmd and snapbox start single programs without a shell: no pipes, no `~`, no variables, and no second user; so the
//! runner is here. The Markdown is read by pulldown-cmark, which is what rustdoc and mdBook read it with.

use crate::mount::support;
mod given;
mod links;
mod markdown;
mod mentioned;
mod runner;
mod workflows;

use runner::{Caller, run_all};

#[test]
fn commands_run_as_root() {
    support::isolated(|| run_all(Caller::Root));
}

#[test]
fn commands_run_as_an_ordinary_user() {
    support::isolated(|| run_all(Caller::User));
}

#[test]
fn commands_and_targets_that_are_mentioned_exist() {
    mentioned::check_all();
}

#[test]
fn links_lead_somewhere() {
    links::check_all();
}

#[test]
fn the_reference_has_every_command() {
    mentioned::check_reference();
}

#[test]
fn the_summary_has_every_page() {
    links::check_summary();
}

#[test]
fn workflows_can_be_read_and_name_what_exists() {
    workflows::check_all();
}

#[test]
fn the_action_makes_an_image() {
    workflows::check_action();
}
