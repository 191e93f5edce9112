//! Protection against a second mount, on and off.

use crate::error::{Error, refused};
use crate::image::Image;
use crate::options::TuneOptions;
use ext4_format::BlockNr;
use ext4_format::features::Features;
use ext4_format::mmp::{self, DEFAULT_INTERVAL, MAX_INTERVAL};

/// Makes the block, takes it away, or changes how often it is written.
pub(crate) fn follow(
    image: &mut Image<'_, '_>,
    now: Features,
    wanted: Features,
    options: &TuneOptions,
) -> Result<(), Error> {
    if now.has_mmp() && !wanted.has_mmp() {
        remove(image)?;
    } else if wanted.has_mmp() && !now.has_mmp() {
        make(image, options)?;
    }
    let Some(seconds) = options.mmp_interval else {
        return Ok(());
    };
    if !wanted.has_mmp() {
        return refused("mmp_update_interval needs mmp");
    }
    if seconds > MAX_INTERVAL {
        return refused(format!(
            "an interval of mmp of more than {MAX_INTERVAL} seconds"
        ));
    }
    let seconds = if seconds == 0 {
        DEFAULT_INTERVAL
    } else {
        seconds
    };
    image.sb.mmp_interval.set(seconds);
    image.tell(
        "mmp",
        format!("its block is written every {seconds} seconds"),
    );
    Ok(())
}

/// Writes a clean block of mmp, whatever the old block says.
pub(crate) fn clear(image: &mut Image<'_, '_>, now: i64) -> Result<(), Error> {
    if !image.geo.features.has_mmp() {
        return refused("clear_mmp needs mmp");
    }
    let block = BlockNr(image.sb.mmp_block.get());
    if !image.geo.is_valid_data_range(block, 1) {
        return refused("the block of mmp is none of the volume's; extant repair mends it");
    }
    write_clean(image, block, now)?;
    image.tell("mmp", "its block says that nobody has the volume");
    Ok(())
}

fn write_clean(image: &Image<'_, '_>, block: BlockNr, now: i64) -> Result<(), Error> {
    let geo = &image.geo;
    let seed = geo.features.has_metadata_csum().then_some(geo.csum_seed);
    Ok(image.write(block, &mmp::clean_block(image.block_size(), now, seed))?)
}

fn make(image: &mut Image<'_, '_>, options: &TuneOptions) -> Result<(), Error> {
    let goal = image.geo.first_data_block;
    let runs = image.allocate(1, goal, "the block of mmp")?;
    let block = BlockNr(runs.first().map_or(0, |run| run.physical));
    write_clean(image, block, options.now)?;
    image.sb.mmp_block.set(block.0);
    image.sb.mmp_interval.set(DEFAULT_INTERVAL);
    image.tell("mmp", format!("its block is {block}"));
    Ok(())
}

fn remove(image: &mut Image<'_, '_>) -> Result<(), Error> {
    let block = BlockNr(image.sb.mmp_block.get());
    if !mmp::is_clean(&image.read(block)?) {
        return refused(
            "somebody may have mounted the volume, by what the block of mmp says; tune2fs -f -E clear_mmp clears it",
        );
    }
    image.free(block, 1)?;
    image.sb.mmp_block.set(0);
    image.sb.mmp_interval.set(0);
    image.tell("mmp", format!("its block {block} is freed"));
    Ok(())
}
