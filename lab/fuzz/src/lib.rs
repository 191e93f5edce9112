//! Shared by the fuzz targets: the shape of the volume that the bytes belong to.

use ext4_format::geometry::Geometry;
use ext4_format::layout::{Layout, LayoutParams};
use std::sync::OnceLock;

/// Returns the shape of a volume of 64 MiB with the features of a new one; without checksums, so that everything is
/// parsed.
pub fn geometry() -> &'static Geometry {
    static GEOMETRY: OnceLock<Geometry> = OnceLock::new();
    GEOMETRY.get_or_init(|| {
        let layout = Layout::new(&LayoutParams::for_size(64 << 20)).expect("a layout of 64 MiB");
        let mut geometry = layout.geometry;
        geometry.features.ro_compat.remove(ext4_format::features::RoCompat::METADATA_CSUM);
        geometry
    })
}
