//! Damage that is found on an open volume: the volume's own blocks are never handed out, whatever a bitmap says; what is
//! found is recorded as ext4 records it, and said; the policy is obeyed. Failures of the host are no damage.

mod bitmaps;
mod host;
mod image;
mod places;
mod record;
mod twice;
