//! The mount, with programs and the kernel's ext4 as judges.

mod basics;
mod confined;
mod control;
mod device;
mod direct;
mod encrypted;
mod exclusion;
mod handles;
mod hostile;
mod inside;
mod kill;
mod moving;
mod other_kernel;
mod posix;
mod privileges;
mod programs;
mod projects;
mod random;
mod remote_rbd;
mod said;
mod scratch;
mod shell;
mod storm;
pub mod support;
mod top;
mod tree;
mod truth;
