//! Half-MD4: MD4's compression (RFC 1320) over eight words instead of sixteen, eight steps per round; for one name,
//! or for several at once, one in each element of a vector. A step depends on the previous one, so with a single name
//! a processor waits.

/// Names that are hashed at once.
pub(super) const AT_ONCE: usize = 8;

/// A word of each of several names.
#[derive(Clone, Copy)]
pub(super) struct Vector(pub(super) [u32; AT_ONCE]);

impl Vector {
    pub(super) const fn of(word: u32) -> Self {
        Self([word; AT_ONCE])
    }

    #[inline(always)]
    fn with(self, other: Self, f: impl Fn(u32, u32) -> u32) -> Self {
        Self(std::array::from_fn(|n| f(self.0[n], other.0[n])))
    }
}

/// Operations of MD4 on words. Those on arrays of a fixed length compile to vector instructions.
pub(super) trait Word: Copy {
    fn add(self, other: Self) -> Self;
    fn add_to_all(self, word: u32) -> Self;
    fn and(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    fn rotate(self, by: u32) -> Self;
}

impl Word for u32 {
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.wrapping_add(other)
    }
    #[inline(always)]
    fn add_to_all(self, word: u32) -> Self {
        self.wrapping_add(word)
    }
    #[inline(always)]
    fn and(self, other: Self) -> Self {
        self & other
    }
    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        self ^ other
    }
    #[inline(always)]
    fn rotate(self, by: u32) -> Self {
        self.rotate_left(by)
    }
}

impl Word for Vector {
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        self.with(other, u32::wrapping_add)
    }
    #[inline(always)]
    fn add_to_all(self, word: u32) -> Self {
        self.add(Self::of(word))
    }
    #[inline(always)]
    fn and(self, other: Self) -> Self {
        self.with(other, |a, b| a & b)
    }
    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        self.with(other, |a, b| a ^ b)
    }
    #[inline(always)]
    fn rotate(self, by: u32) -> Self {
        Self(self.0.map(|word| word.rotate_left(by)))
    }
}

#[inline(always)]
fn choose<W: Word>(x: W, y: W, z: W) -> W {
    z.xor(x.and(y.xor(z)))
}

/// Returns the majority, in terms of differences: that of the last two words is the first one of the step before.
#[inline(always)]
fn majority<W: Word>(x: W, y: W, z: W) -> W {
    x.xor(y).and(y.xor(z)).xor(y)
}

#[inline(always)]
fn parity<W: Word>(x: W, y: W, z: W) -> W {
    x.xor(y).xor(z)
}

/// Computes a step: `a + f + input`, rotated.
#[inline(always)]
fn step<W: Word>(a: W, f: W, input: W, by: u32) -> W {
    a.add(f).add(input).rotate(by)
}

#[inline(always)]
pub(super) fn compress<W: Word>(state: &mut [W; 4], x: &[W; 8]) {
    const ROOT2: u32 = 0x5a82_7999;
    const ROOT3: u32 = 0x6ed9_eba1;
    let [mut a, mut b, mut c, mut d] = *state;
    for q in [[0, 1, 2, 3], [4, 5, 6, 7]] {
        a = step(a, choose(b, c, d), x[q[0]], 3);
        d = step(d, choose(a, b, c), x[q[1]], 7);
        c = step(c, choose(d, a, b), x[q[2]], 11);
        b = step(b, choose(c, d, a), x[q[3]], 19);
    }
    for q in [[1, 3, 5, 7], [0, 2, 4, 6]] {
        a = step(a, majority(b, c, d), x[q[0]].add_to_all(ROOT2), 3);
        d = step(d, majority(a, b, c), x[q[1]].add_to_all(ROOT2), 5);
        c = step(c, majority(d, a, b), x[q[2]].add_to_all(ROOT2), 9);
        b = step(b, majority(c, d, a), x[q[3]].add_to_all(ROOT2), 13);
    }
    for q in [[3, 7, 2, 6], [1, 5, 0, 4]] {
        a = step(a, parity(b, c, d), x[q[0]].add_to_all(ROOT3), 3);
        d = step(d, parity(a, b, c), x[q[1]].add_to_all(ROOT3), 9);
        c = step(c, parity(d, a, b), x[q[2]].add_to_all(ROOT3), 11);
        b = step(b, parity(c, d, a), x[q[3]].add_to_all(ROOT3), 15);
    }
    for (s, v) in state.iter_mut().zip([a, b, c, d]) {
        *s = s.add(v);
    }
}
