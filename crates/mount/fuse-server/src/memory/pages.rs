//! The data of a file in memory: pages by number; missing pages are holes.

use std::collections::BTreeMap;

const PAGE: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Pages {
    pages: BTreeMap<u64, Box<[u8; PAGE]>>,
}

/// Returns the pieces of `offset..offset + length`: page, place in it, place in the range, length.
fn pieces(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = (at % PAGE as u64) as usize;
        let piece = (PAGE - within).min(length - done);
        let start = done;
        done += piece;
        (piece > 0).then_some((at / PAGE as u64, within, start, piece))
    })
}

impl Pages {
    pub(super) fn read(&self, offset: u64, room: &mut [u8]) {
        for (page, within, start, length) in pieces(offset, room.len()) {
            let room = &mut room[start..start + length];
            match self.pages.get(&page) {
                Some(page) => room.copy_from_slice(&page[within..within + length]),
                None => room.fill(0),
            }
        }
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        for (page, within, start, length) in pieces(offset, data.len()) {
            let page = self
                .pages
                .entry(page)
                .or_insert_with(|| Box::new([0; PAGE]));
            page[within..within + length].copy_from_slice(&data[start..start + length]);
        }
    }

    /// Drops the data after the new size.
    pub(super) fn cut(&mut self, size: u64) {
        let (last, within) = (size / PAGE as u64, (size % PAGE as u64) as usize);
        if within > 0
            && let Some(page) = self.pages.get_mut(&last)
        {
            page[within..].fill(0);
        }
        drop(self.pages.split_off(&size.div_ceil(PAGE as u64)));
    }

    /// Returns the space in units of 512 bytes.
    pub(super) fn blocks(&self) -> u64 {
        (self.pages.len() * (PAGE / 512)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_read_as_zeroes_and_cut_data_stays_gone() {
        let mut pages = Pages::default();
        pages.write(5000, &[7; 10_000]);
        assert_eq!(pages.blocks(), 24);
        pages.cut(6000);
        assert_eq!(pages.blocks(), 8);
        let mut bytes = [1; 10_000];
        pages.read(0, &mut bytes);
        assert!(
            bytes[..5000]
                .iter()
                .chain(&bytes[6000..])
                .all(|&byte| byte == 0)
        );
        assert!(bytes[5000..6000].iter().all(|&byte| byte == 7));
        pages.cut(0);
        assert_eq!(pages.blocks(), 0);
    }
}
