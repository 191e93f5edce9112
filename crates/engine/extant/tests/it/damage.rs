//! Damage found on an open volume: the volume's own blocks are never allocated, whatever a bitmap holds. Each finding
//! is recorded as ext4 records it, and reported, and the policy is obeyed. Failures of the host are not damage.

mod bitmaps;
mod host;
mod image;
mod places;
mod record;
mod twice;
