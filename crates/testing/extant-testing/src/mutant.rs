//! An image broken on purpose, chosen by a seed.

use crate::bases::Base;
use crate::common::Rng;
use crate::image;
use crate::mutate::{Targets, mutate};
use blockdev::MemDevice;
use std::collections::BTreeSet;

/// Breaks one of the bases; returns it, the broken image, and the blocks that were touched.
pub fn mutant<'b>(bases: &'b [Base], rng: &mut Rng) -> (&'b Base, MemDevice, BTreeSet<u64>) {
    let base = &bases[rng.below(bases.len() as u64) as usize];
    let device = base.device.snapshot();
    let targets = Targets::new(&base.map, base.block, image::metadata(&device, base.block));
    let touched = mutate(&device, &targets, rng);
    if base.kind.sealed && rng.below(8) != 0 {
        base.map.seal(&device, &touched);
    }
    (base, device, touched)
}
