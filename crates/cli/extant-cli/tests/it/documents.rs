//! Tests of the documents: every command in them runs and prints the output shown, and every link has a target.
//!
//! Commands are in `console` blocks, after `$ `. The lines after a command are its output; `...` is any number of
//! lines. The blocks of one document run in order, in one directory that is also the home directory, as root and as an
//! ordinary user.
//!
//! This test has its own runner, because trycmd and snapbox start single programs without a shell: no pipes, no `~`,
//! no variables, and no second user. pulldown-cmark, which rustdoc and mdBook use, reads the Markdown.

use crate::mount::support;
mod filters;
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
fn commands_that_select_tests_select_some() {
    filters::check_all();
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
