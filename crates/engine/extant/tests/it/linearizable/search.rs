//! Search for an order of the steps that explains every answer and the tree at the end. In that order no step is before
//! its call began or after it ended. (Wing and Gong, "Testing and verifying concurrent objects", 1993, with Lowe's
//! memory of states seen.)

use crate::linearizable::calls::Event;
use crate::linearizable::spec::{Again, Context, Progress, Step};
use crate::reference::Model;
use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

/// The position of every thread, and the tree at that point.
#[derive(Clone)]
struct SearchState {
    /// Calls done, and how far the next one is.
    at: Vec<(usize, Progress)>,
    model: Model,
}

impl SearchState {
    fn print(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.at.hash(&mut hasher);
        for node in &self.model.nodes {
            node.hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// The furthest state that any order reached.
pub struct Stuck {
    /// Calls explained, by thread.
    pub done: Vec<usize>,
    /// The reason when all calls are explained but the final tree is not.
    pub end: Option<String>,
    pub states: usize,
}

/// Finds a state of the reference in which all answers are explained and `end` returns true.
pub fn explain(
    context: &Context,
    start: &Model,
    history: &[Vec<Event>],
    end: impl Fn(&mut Model) -> Result<(), String>,
) -> Result<Model, Stuck> {
    let base = start.nodes.len();
    let mut model = start.clone();
    // The inode that call n of thread t makes has a fixed place, so that states reached by different orders are equal.
    let firsts: Vec<usize> = history
        .iter()
        .scan(base, |at, h| {
            let first = *at;
            *at += h.len();
            Some(first)
        })
        .collect();
    let unused = std::rc::Rc::new(crate::reference::Node::unused());
    let all: usize = history.iter().map(Vec::len).sum();
    model.nodes.extend(std::iter::repeat_n(unused, all));
    let mut seen = HashSet::new();
    let mut todo = vec![SearchState {
        at: vec![(0, Progress::default()); history.len()],
        model,
    }];
    let mut stuck = Stuck {
        done: vec![0; history.len()],
        end: None,
        states: 0,
    };
    while let Some(state) = todo.pop() {
        if !seen.insert(state.print()) {
            continue;
        }
        let done: Vec<usize> = state.at.iter().map(|a| a.0).collect();
        if done.iter().sum::<usize>() > stuck.done.iter().sum::<usize>() {
            stuck.done = done;
        }
        let next = |t: usize| history[t].get(state.at[t].0);
        let mut ready: Vec<usize> = (0..history.len()).filter(|&t| next(t).is_some()).collect();
        if ready.is_empty() {
            let mut model = state.model;
            match end(&mut model) {
                Ok(()) => return Ok(model),
                Err(why) => stuck.end = Some(why),
            }
            continue;
        }
        // A call has not begun while one that ended before it is not done.
        let first_end = ready.iter().filter_map(|&t| next(t)).map(|e| e.end).min();
        ready.retain(|&t| !state.at[t].1.fresh() || next(t).map(|e| e.begin) <= first_end);
        // Calls that ended first are tried first: they probably came first.
        ready.sort_by_key(|&t| std::cmp::Reverse(next(t).map(|e| e.end)));
        for t in ready {
            let Some(event) = next(t) else { continue };
            let again = context.again(&event.call, &state.at[t].1, &state.model);
            if again.is_some() {
                let mut state = state.clone();
                state.at[t].1 = Progress::default();
                todo.push(state);
            }
            if again == Some(Again::Must) {
                continue;
            }
            let mut state = state.clone();
            let new = firsts[t] + state.at[t].0;
            let progress = &mut state.at[t].1;
            match context.step(&event.call, progress, &mut state.model, new, &event.answer) {
                Step::More => todo.push(state),
                Step::Done(expected) if expected == event.answer => {
                    state.model.next = None;
                    state.at[t] = (state.at[t].0 + 1, Progress::default());
                    todo.push(state);
                }
                Step::Done(_) => {}
            }
        }
    }
    stuck.states = seen.len();
    Err(stuck)
}
