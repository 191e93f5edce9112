//! A broken rule stops the volume, and nothing after the last commit reaches the image.

use crate::Volume;
use crate::base::error::Error;
use crate::base::invariants::Rule;
use crate::log::Cost;
use crate::types::credentials::Credentials;
use crate::volume::engine::Engine;
use ext4_format::BlockNr;
use extant_formatter::extent_map::Run;
use extant_formatter::image::Image;

/// Breaks a rule of a volume with a durable change and one that is not durable. The volume stops with the rule's text,
/// and the image has only the durable change.
fn breaks(rule: Rule, how: impl FnOnce(&Engine)) {
    let device = std::sync::Arc::new(blockdev::MemDevice::new(16 << 20));
    let options = crate::mkfs::MkfsOptions {
        size: Some(16 << 20),
        zeroed_device: true,
        ..Default::default()
    };
    crate::mkfs::format(&*device, &options).unwrap();
    let open = || -> Volume {
        let device = std::sync::Arc::clone(&device);
        let options = crate::VolumeOptions::new().background(false);
        options.open_device(device).unwrap()
    };
    let volume = open();
    volume.write("/durable", b"1").unwrap();
    volume.sync().unwrap();
    volume.create_new_file("/not").unwrap();
    how(volume.guard_engine());
    let error = volume.sync().unwrap_err().to_string();
    assert!(error.contains(rule.text()), "{error}");
    let error = volume.create_new_file("/more").map(drop).unwrap_err();
    assert!(matches!(error, Error::ReadOnly(_)), "{error}");
    assert_eq!(volume.read("/durable").unwrap(), b"1");
    volume.close().unwrap_err();
    let volume = open();
    assert_eq!(volume.read("/durable").unwrap(), b"1");
    assert!(matches!(volume.metadata("/not"), Err(Error::NotFound)));
}

#[test]
fn blocks_that_are_free_are_not_freed() {
    breaks(Rule::FreedWasUsed, |engine| {
        let block = engine.space.allocate_block(BlockNr(2000)).unwrap();
        engine.space.mark_free(block, 1).unwrap();
        assert!(engine.space.mark_free(block, 1).is_err());
    });
}

#[test]
fn a_run_beyond_the_volume_is_not_logged() {
    breaks(Rule::RunInVolume, |engine| {
        let tx = engine
            .commit
            .begin(&Credentials::root(), Cost::MAP)
            .unwrap();
        let run = Run {
            logical: 0,
            len: 2,
            physical: BlockNr(engine.store.geometry.blocks_count - 1),
            unwritten: false,
        };
        tx.commit(0, |c| c.map_run(ext4_format::InodeNr(12), run, true));
    });
}

#[test]
fn contexts_become_durable_in_order() {
    breaks(Rule::DurableInOrder, |engine| {
        let noted = engine.log.note_durable(engine.log.durable());
        engine.store.heed(noted).unwrap_err();
    });
}

#[test]
fn nothing_is_written_home_while_the_volume_is_frozen() {
    breaks(Rule::FrozenIsStill, |engine| {
        assert!(engine.store.gate.close() && engine.store.gate.shut());
        let images = [(BlockNr(2000), Image::made(vec![1; 4096]))];
        let written = crate::commit::journal::home::write_home(&engine.commit, &images);
        engine.store.heed(written).unwrap_err();
        engine.store.gate.open();
    });
}
