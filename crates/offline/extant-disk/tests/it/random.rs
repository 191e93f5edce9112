//! Random numbers, the same in each run.

/// Returns a function whose results are below its argument.
pub fn numbers() -> impl FnMut(usize) -> usize {
    let mut state = 88_172_645_463_325_252_u64;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize % below
    }
}
