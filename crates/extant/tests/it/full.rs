//! A full volume: every operation says NoSpace and nothing worse, what was accepted is kept, removing
//! makes room again, and e2fsck is content at every stage.

mod edges;
mod filling;
mod mappings;
mod rounds;
