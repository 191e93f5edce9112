//! Offsets of addresses in values, for the names that the conflict test gives to cache lines.

/// Returns the offset of an address in a value, if it lies in it.
pub(crate) fn within<T: ?Sized>(value: &T, address: usize) -> Option<usize> {
    let start = std::ptr::from_ref(value).cast::<u8>().addr();
    address
        .checked_sub(start)
        .filter(|&offset| offset < size_of_val(value))
}
