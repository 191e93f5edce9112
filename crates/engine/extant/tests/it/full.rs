//! A full volume: every operation fails with NoSpace and nothing worse, accepted data are kept, removing files makes
//! room again, and e2fsck is content at every stage.

mod edges;
mod filling;
mod mappings;
mod rounds;
