//! A test of what [`BlockDevice`] promises, for devices of any kind.

use crate::device::BlockDevice;
use std::io::{Error, ErrorKind};

/// Least size of a device under test: 8 MiB.
pub const MIN_LEN: u64 = 8 << 20;

/// Checks that a device keeps the promises of [`BlockDevice`]. Overwrites the device, which must be at least
/// [`MIN_LEN`] bytes long and writable. `align` is the least multiple of offsets and lengths that the device accepts, at most 4096.
///
/// # Errors
/// The promise that does not hold, as text for the author of the device.
///
/// ```
/// use extant_blockdev::{MemDevice, conformance};
/// conformance::check(&MemDevice::new(conformance::MIN_LEN), 1).unwrap();
/// ```
pub fn check(device: &dyn BlockDevice, align: u64) -> Result<(), String> {
    if device.len() < MIN_LEN || device.read_only() {
        return Err("the device is too short for this test, or read-only".into());
    }
    let unit = device.write_unit();
    if !unit.is_power_of_two() || unit < align {
        return Err(format!(
            "writes in units of {unit} bytes: a power of two, at least {align}"
        ));
    }
    let test = Conformance { device, align };
    test.reads_return_what_was_written()?;
    test.ranges_past_the_end_fail()?;
    test.vectors_are_contiguous()?;
    test.requests_run_concurrently()?;
    test.large_requests_are_complete()?;
    test.discarded_ranges_are_zeros()?;
    test.trim_keeps_the_neighbours()?;
    test.what_is_not_data_is_zeros()?;
    test.the_length_follows_its_rules()?;
    device.flush().map_err(|e| format!("flush: {e}"))
}

struct Conformance<'d> {
    device: &'d dyn BlockDevice,
    align: u64,
}

/// Returns bytes that differ from those of another place or seed.
fn pattern(seed: u64, len: u64) -> Vec<u8> {
    let byte = |i: u64| (i.wrapping_mul(31) ^ (i >> 8) ^ seed.wrapping_mul(97)) as u8;
    (0..len).map(byte).collect()
}

impl Conformance<'_> {
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), String> {
        let len = bytes.len();
        let written = self.device.write_at(offset, bytes);
        written.map_err(|e| format!("write of {len} bytes at {offset}: {e}"))
    }

    /// Reads a range, and compares it.
    fn expect(&self, offset: u64, bytes: &[u8], what: &str) -> Result<(), String> {
        // Bytes that a short read would leave.
        let mut found = vec![0xa5; bytes.len()];
        let read = self.device.read_at(offset, &mut found);
        read.map_err(|e| format!("{what}: read of {} bytes at {offset}: {e}", bytes.len()))?;
        match found.iter().zip(bytes).position(|(a, b)| a != b) {
            None => Ok(()),
            Some(at) => Err(format!(
                "{what}: byte {} is {:#x} instead of {:#x}",
                offset + at as u64,
                found[at],
                bytes[at]
            )),
        }
    }

    fn reads_return_what_was_written(&self) -> Result<(), String> {
        let what = "a write is read back";
        let step = self.align;
        let cases = [
            (0, step),
            (step, step),
            (3 * step, 5 * step),
            (8192 - step, 2 * step),
            (65_536 - step, 65_536 + 2 * step),
            (self.device.len() - step, step),
        ];
        for (seed, (offset, len)) in (1..).zip(cases) {
            let bytes = pattern(seed, len);
            self.write(offset, &bytes)?;
            self.expect(offset, &bytes, what)?;
        }
        // A later write wins, and its neighbours stay.
        let (old, new) = (pattern(20, 16 * step), pattern(21, 4 * step));
        self.write(0, &old)?;
        self.write(4 * step, &new)?;
        let within = (4 * step) as usize..(8 * step) as usize;
        let mut both = old;
        both[within].copy_from_slice(&new);
        self.expect(0, &both, "a later write wins")
    }

    fn ranges_past_the_end_fail(&self) -> Result<(), String> {
        let (end, step) = (self.device.len(), self.align);
        let last = pattern(30, step);
        self.write(end - step, &last)?;
        let mut bytes = vec![1; 2 * step as usize];
        let is_eof = |result: Result<(), Error>| match result {
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => Ok(()),
            other => Err(format!("a range past the end is UnexpectedEof: {other:?}")),
        };
        is_eof(self.device.read_at(end - step, &mut bytes))?;
        is_eof(self.device.write_at(end - step, &bytes))?;
        is_eof(self.device.read_at(end, &mut bytes))?;
        is_eof(self.device.read_at(u64::MAX - step + 1, &mut bytes))?;
        is_eof(self.device.write_at(u64::MAX - step + 1, &bytes))?;
        is_eof(self.device.discard(end - step, 2 * step))?;
        self.expect(end - step, &last, "a write that fails changes nothing")?;
        let nothing = self.device.read_at(end, &mut []);
        nothing.map_err(|e| format!("an empty read at the end succeeds: {e}"))
    }

    fn vectors_are_contiguous(&self) -> Result<(), String> {
        let parts = [
            pattern(40, self.align),
            Vec::new(),
            pattern(41, 9 * self.align),
            pattern(42, self.align),
        ];
        let bufs: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let offset = 12 * self.align;
        let written = self.device.write_vectored_at(offset, &bufs);
        written.map_err(|e| format!("vectored write: {e}"))?;
        self.expect(offset, &parts.concat(), "a vectored write is contiguous")
    }

    fn requests_run_concurrently(&self) -> Result<(), String> {
        const TASKS: u64 = 4;
        let share = self.device.len() / TASKS / 4096 * 4096;
        let one = |task: u64| {
            for round in 0..16 {
                let offset = task * share + round * 36_864 % (share - 65_536) / 4096 * 4096;
                let bytes = pattern(task * 100 + round, 32_768);
                self.write(offset, &bytes)?;
                if round % 5 == 0 {
                    self.device.flush().map_err(|e| format!("flush: {e}"))?;
                }
                self.expect(offset, &bytes, "concurrent requests do not mix")?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let tasks: Vec<_> = (0..TASKS)
                .map(|task| scope.spawn(move || one(task)))
                .collect();
            let ended: Vec<_> = tasks.into_iter().map(|task| task.join()).collect();
            let mut ended = ended.into_iter();
            ended.try_for_each(|end| end.unwrap_or_else(|_| Err("a request panics".into())))
        })
    }

    fn large_requests_are_complete(&self) -> Result<(), String> {
        let bytes = pattern(50, MIN_LEN);
        self.write(0, &bytes)?;
        self.expect(0, &bytes, "a large request is complete")
    }

    fn discarded_ranges_are_zeros(&self) -> Result<(), String> {
        let bytes = pattern(60, 1 << 20);
        self.write(0, &bytes)?;
        for (offset, len) in [
            (self.align, self.align),
            (8192, 4096),
            (16_384, 600_000 / 4096 * 4096),
        ] {
            let discarded = self.device.discard(offset, len);
            discarded.map_err(|e| format!("discard of {len} bytes at {offset}: {e}"))?;
            let what = "a discarded range is zeros";
            self.expect(offset, &vec![0; len as usize], what)?;
            let behind = (offset + len) as usize;
            let next = &bytes[behind..behind + 4096.min(self.align as usize)];
            self.expect(behind as u64, next, "discard keeps the neighbours")?;
        }
        Ok(())
    }

    fn trim_keeps_the_neighbours(&self) -> Result<(), String> {
        let bytes = pattern(70, 64 << 10);
        self.write(0, &bytes)?;
        match self.device.trim(16 << 10, 16 << 10) {
            Err(e) if !matches!(e.kind(), ErrorKind::Unsupported | ErrorKind::ResourceBusy) => {
                return Err(format!("trim succeeds or is Unsupported: {e}"));
            }
            _ => {}
        }
        self.expect(0, &bytes[..16 << 10], "trim keeps the neighbours")?;
        self.expect(32 << 10, &bytes[32 << 10..], "trim keeps the neighbours")
    }

    fn what_is_not_data_is_zeros(&self) -> Result<(), String> {
        let what = "a range that is not data";
        let (place, bytes) = (3 << 20, pattern(70, 4096));
        self.write(place, &bytes)?;
        self.device
            .discard(1 << 20, 1 << 20)
            .map_err(|e| format!("discard: {e}"))?;
        let (mut at, len) = (0, self.device.len());
        let mut is_found = false;
        while at < len {
            let data = self.device.next_data(at);
            let data = data.map_err(|e| format!("next_data({at}): {e}"))?;
            let data = data.unwrap_or(len..len);
            if data.start < at || data.end > len || (data.is_empty() && data.start < len) {
                return Err(format!("next_data({at}) answers {data:?}"));
            }
            self.expect(at, &vec![0; (data.start - at) as usize], what)?;
            is_found |= data.contains(&place);
            at = data.end;
        }
        match self.device.next_data(len) {
            Ok(None) if is_found => Ok(()),
            Ok(None) => Err("next_data leaves out bytes that were written".into()),
            other => Err(format!("next_data of the end answers {other:?}")),
        }
    }

    fn the_length_follows_its_rules(&self) -> Result<(), String> {
        let len = self.device.len();
        let same = self
            .device
            .extend(len)
            .and_then(|()| self.device.shorten(len));
        same.map_err(|e| format!("extend and shorten to the present length succeed: {e}"))?;
        match self.device.extend(len + 4096) {
            Err(e) if e.kind() == ErrorKind::Unsupported => return Ok(()),
            Err(e) => return Err(format!("extend succeeds or is Unsupported: {e}")),
            Ok(()) => {}
        }
        if self.device.len() < len + 4096 {
            return Err("extend makes the device longer".into());
        }
        self.expect(len, &[0; 4096], "new bytes are zeros")?;
        match self.device.shorten(len) {
            Err(e) if e.kind() != ErrorKind::Unsupported => {
                Err(format!("shorten succeeds or is Unsupported: {e}"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Access, FaultDevice, FileDevice, MemDevice, Overlay, PartDevice, RecordingDevice,
        SnapshotDevice,
    };
    use std::io;
    use std::sync::Arc;

    #[test]
    fn devices_of_this_crate_conform() {
        let memory = || Arc::new(MemDevice::new(2 * MIN_LEN));
        check(&memory(), 1).unwrap();
        check(&RecordingDevice::new(memory()), 1).unwrap();
        check(&FaultDevice::new(memory()), 1).unwrap();
        check(&SnapshotDevice::new(memory()), 1).unwrap();
        check(&PartDevice::new(memory(), 4096..4096 + MIN_LEN).unwrap(), 1).unwrap();
        check(
            &Overlay::create(memory(), MemDevice::new(4 * MIN_LEN)).unwrap(),
            1,
        )
        .unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        std::fs::File::create(&path)
            .unwrap()
            .set_len(MIN_LEN)
            .unwrap();
        check(&FileDevice::open(&path, Access::ReadWrite).unwrap(), 1).unwrap();
    }

    /// Device that breaks one promise.
    struct Broken(MemDevice, &'static str);

    impl BlockDevice for Broken {
        fn len(&self) -> u64 {
            self.0.len()
        }
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
            if self.1 == "short reads" && buf.len() > 60_000 {
                let half = buf.len() / 2;
                return self.0.read_at(offset, &mut buf[..half]);
            }
            self.0.read_at(offset, buf)
        }
        fn write_at(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
            if self.1 == "writes at the end" && offset.saturating_add(buf.len() as u64) > self.len()
            {
                return Ok(());
            }
            self.0.write_at(offset, buf)
        }
        fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
            match self.1 {
                "discards nothing" => Ok(()),
                "discards more" => self.0.discard(offset, len + 1),
                _ => self.0.discard(offset, len),
            }
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
        fn read_only(&self) -> bool {
            false
        }
    }

    #[test]
    fn broken_promises_are_found() {
        assert_eq!(check(&Broken(MemDevice::new(MIN_LEN), ""), 1), Ok(()));
        for what in [
            "short reads",
            "writes at the end",
            "discards nothing",
            "discards more",
        ] {
            let found = check(&Broken(MemDevice::new(MIN_LEN), what), 1);
            assert!(found.is_err(), "{what}");
        }
    }
}
