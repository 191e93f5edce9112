//! Images on stores of every kind, one module for each.

mod crash;
mod directory;
mod rbd;
mod requests;
mod stores;
mod storm;
mod support;
mod tls;
mod watched;
mod web;
