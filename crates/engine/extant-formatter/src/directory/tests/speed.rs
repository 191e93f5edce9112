//! Measures the time of batches.

use super::*;

/// Times bulk and scattered adds; run in release with `--ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn speed() {
    let mut v = Volume::new(DirectoryKind {
        block_size: 4096,
        ..PLAIN
    });
    let time = |v: &mut Volume, what: &str, ops: &[Op]| {
        let names = net_names(ops, &v.hasher);
        let buffers = v.buffers();
        for l in 0..v.blocks {
            buffers.image(physical(l)).unwrap().set_verified();
        }
        let init = (v.blocks == 0).then_some(v.parent);
        let update = DirUpdate {
            ino: OWN,
            seed: SEED,
            indexed: v.indexed,
            init,
            new_parent: None,
            keeps_room: false,
            names: &names,
            hasher: &v.hasher,
            crew: &Crew::of(std::thread::available_parallelism().unwrap().get()),
        };
        let mut blocks = Blocks(v.blocks);
        let mut ws = Workspace::new(&v.geometry, &buffers);
        let start = std::time::Instant::now();
        let outcome = apply(&mut ws, &mut blocks, &update).unwrap();
        let took = start.elapsed();
        (v.blocks, v.indexed) = (blocks.0, outcome.indexed);
        let (changed, _) = ws.finish();
        eprintln!(
            "{what}: {took:?}, {:?} a name, {} blocks",
            took / names.len() as u32,
            changed.len()
        );
        for (block, image) in changed {
            v.device.write_at(block.offset(4096), &image).unwrap();
        }
    };
    let adds = |range: std::ops::Range<u32>| range.map(add).collect::<Vec<_>>();
    time(&mut v, "100k into none", &adds(0..100_000));
    time(&mut v, "900k into 100k", &adds(100_000..1_000_000));
    time(&mut v, "100k into 1M", &adds(1_000_000..1_100_000));
    time(&mut v, "100k again", &adds(1_000_000..1_100_000));
    time(&mut v, "1 into 1.1M", &adds(1_200_000..1_200_001));
    time(&mut v, "10k into 1.1M", &adds(1_300_000..1_310_000));
}
