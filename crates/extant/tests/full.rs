//! A full volume: every operation says NoSpace and nothing worse, what was accepted is kept, removing
//! makes room again, and e2fsck is content at every stage.

mod common;
#[path = "full/edges.rs"]
mod edges;
#[path = "full/filling.rs"]
mod filling;
#[path = "full/mappings.rs"]
mod mappings;
#[path = "full/rounds.rs"]
mod rounds;
