//! The images of a device, for tests.

use crate::error::{Error, Result};
use crate::image::{BlockImages, Image};
use blockdev::BlockDevice;
use ext4_format::BlockNr;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// The images of a device, each kept from its first reading until it is forgotten.
pub struct DeviceImages {
    device: Arc<dyn BlockDevice>,
    block_size: u32,
    images: Mutex<HashMap<BlockNr, Arc<Image>>>,
}

impl DeviceImages {
    pub fn new(device: Arc<dyn BlockDevice>, block_size: u32) -> Self {
        Self {
            device,
            block_size,
            images: Mutex::default(),
        }
    }

    /// Forgets the block, so that it is read again when it is needed.
    pub fn forget(&self, block: BlockNr) {
        self.images.lock().unwrap().remove(&block);
    }

    /// Keeps the image as the newest one.
    pub fn keep(&self, block: BlockNr, image: Arc<Image>) {
        self.images.lock().unwrap().insert(block, image);
    }
}

impl BlockImages for DeviceImages {
    fn image(&self, block: BlockNr) -> Result<Arc<Image>> {
        let mut images = self.images.lock().unwrap();
        if let Some(image) = images.get(&block) {
            return Ok(Arc::clone(image));
        }
        let mut bytes = vec![0; self.block_size as usize];
        self.device
            .read_at(block.offset(self.block_size), &mut bytes)
            .map_err(|source| Error::Read { block, source })?;
        let image = Image::read(bytes);
        images.insert(block, Arc::clone(&image));
        Ok(image)
    }
}
