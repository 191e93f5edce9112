//! Damage that is found on an open volume: the volume's own blocks are never handed out, whatever a bitmap says; what is
//! found is recorded as ext4 records it, and said; the policy is obeyed. Failures of the host are no damage.

#[path = "damage/bitmaps.rs"]
mod bitmaps;
mod common;
#[path = "damage/host.rs"]
mod host;
#[path = "damage/image.rs"]
mod image;
#[path = "damage/places.rs"]
mod places;
#[path = "damage/record.rs"]
mod record;
#[path = "damage/twice.rs"]
mod twice;
