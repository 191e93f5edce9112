//! Threads of a test that run one at a time, in an order that a seed decides.
//!
//! The code under test is the real one, with its real locks. A thread passes its turn on whenever it takes a lock,
//! waits for a condition or reaches a [`pass`]; the next thread is drawn. So each seed is one schedule, identical every
//! time, and a schedule that fails can be run again. Only builds with debug assertions have this, and only threads of
//! [`run`] take part. Threads that these start themselves must not need a lock that another one of them holds.

use std::cell::RefCell;
use std::sync::Arc;

/// Passes after which the schedule is taken for stuck.
const MOST: u64 = 20_000_000;

struct TurnState {
    drawn: u64,
    /// Whether each thread still runs.
    alive: Vec<bool>,
    /// The thread whose turn it is.
    now: usize,
    passes: u64,
}

impl TurnState {
    /// Draws the next thread, if any is left.
    fn draw(&mut self) {
        let left = self.alive.iter().filter(|a| **a).count() as u64;
        if left == 0 {
            return;
        }
        // xorshift64*
        self.drawn ^= self.drawn >> 12;
        self.drawn ^= self.drawn << 25;
        self.drawn ^= self.drawn >> 27;
        let nth = (self.drawn.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % left;
        let mut runs = (0..self.alive.len()).filter(|i| self.alive[*i]);
        self.now = runs.nth(nth as usize).unwrap_or(self.now);
    }
}

struct Turns {
    state: parking_lot::Mutex<TurnState>,
    changed: parking_lot::Condvar,
}

thread_local! {
    static HERE: RefCell<Option<(Arc<Turns>, usize)>> = const { RefCell::new(None) };
}

/// Takes part until it is dropped, also when the thread panics.
struct Part(Arc<Turns>, usize);

impl Part {
    fn begin(turns: &Arc<Turns>, number: usize) -> Self {
        HERE.set(Some((Arc::clone(turns), number)));
        turns.wait(number);
        Self(Arc::clone(turns), number)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        HERE.set(None);
        let mut state = self.0.state.lock();
        state.alive[self.1] = false;
        state.draw();
        self.0.changed.notify_all();
    }
}

impl Turns {
    fn wait(&self, number: usize) {
        let mut state = self.state.lock();
        while state.now != number {
            self.changed.wait(&mut state);
        }
    }
}

/// Runs the tasks, a thread each, in the schedule of the seed; returns how often a turn was passed on. A task's
/// panic is resumed when all tasks have ended.
pub fn run<'a>(seed: u64, tasks: Vec<Box<dyn FnOnce() + Send + 'a>>) -> u64 {
    let mut state = TurnState {
        drawn: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
        alive: vec![true; tasks.len()],
        now: 0,
        passes: 0,
    };
    state.draw();
    let turns = Arc::new(Turns {
        state: parking_lot::Mutex::new(state),
        changed: parking_lot::Condvar::new(),
    });
    std::thread::scope(|s| {
        for (number, task) in tasks.into_iter().enumerate() {
            let turns = &turns;
            s.spawn(move || {
                let _part = Part::begin(turns, number);
                task();
            });
        }
    });
    let state = turns.state.lock();
    state.passes
}

/// Passes the turn on, if this thread takes part.
pub fn pass() {
    // A thread that is ending has no turn to pass on.
    let here = HERE.try_with(|here| here.borrow().clone());
    let Ok(Some((turns, number))) = here else {
        return;
    };
    let mut state = turns.state.lock();
    state.passes += 1;
    assert!(
        state.passes < MOST || std::thread::panicking(),
        "no thread gets further"
    );
    state.draw();
    if state.now != number {
        turns.changed.notify_all();
        while state.now != number {
            turns.changed.wait(&mut state);
        }
    }
}

/// Takes a lock by trying, turn by turn; false if this thread takes no part, and then nothing was tried.
pub(crate) fn take(try_take: impl Fn() -> bool) -> bool {
    if !takes_part() {
        return false;
    }
    loop {
        pass();
        if try_take() {
            return true;
        }
    }
}

/// Returns whether this thread takes part.
pub(crate) fn takes_part() -> bool {
    HERE.try_with(|here| here.borrow().is_some())
        .unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    fn order(seed: u64) -> Vec<usize> {
        let order = Mutex::new(Vec::new());
        let tasks = (0..3).map(|task| {
            let order = &order;
            let work = move || {
                for _ in 0..20 {
                    order.lock().unwrap().push(task);
                    pass();
                }
            };
            Box::new(work) as Box<dyn FnOnce() + Send>
        });
        assert!(run(seed, tasks.collect()) >= 60);
        order.into_inner().unwrap()
    }

    #[test]
    fn a_seed_is_a_schedule() {
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
        assert_eq!(order(3).len(), 60);
    }

    #[test]
    fn conditions_are_waited_for_by_turns() {
        crate::lock_class!(Queue = "queue of a test");
        for seed in 0..50 {
            let (queue, changed) = (
                crate::Mutex::<Vec<u32>, Queue>::new(vec![]),
                crate::Condvar::new(),
            );
            let mut got = Vec::new();
            let (queue, changed) = (&queue, &changed);
            let take = || {
                while got.len() < 5 {
                    let mut items = queue.lock();
                    while items.is_empty() {
                        changed.wait(&mut items);
                    }
                    got.append(&mut items);
                }
            };
            let give = || {
                for n in 0..5 {
                    queue.lock().push(n);
                    changed.notify_one();
                }
            };
            run(seed, vec![Box::new(take), Box::new(give)]);
            assert_eq!(got, [0, 1, 2, 3, 4]);
        }
    }
}
