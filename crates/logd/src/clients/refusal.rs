//! Why a greeting is refused: the words of the answers (`E 1 token`), and how many there were of each.
//!
//! Every refusal is counted, so an operator sees clients that are configured wrongly, and guesses of tokens. It
//! does not decide who is refused: `connection`, `tokens` and `names` do.

/// Why a client that greeted is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The greeting is none that is known.
    Unknown,
    /// It asks for more than the daemon promises.
    Weaker,
    /// Nobody has its token.
    Token,
    /// Its token came in plain from another machine.
    Transport,
    /// What it says is its name is none.
    Wrong,
    /// The lines of its name from before are on their way: soon.
    Busy,
    /// As many names as are remembered have lines or are in use, or as many as one may bring.
    Many,
    /// Nobody knows whose its name would be.
    Unidentified,
    /// The lines of its name came too long ago, and their number is forgotten.
    Expired,
    /// A newer connection has its name.
    Taken,
}

impl Refusal {
    const ALL: [Refusal; 10] = [
        Refusal::Unknown,
        Refusal::Weaker,
        Refusal::Token,
        Refusal::Transport,
        Refusal::Wrong,
        Refusal::Busy,
        Refusal::Many,
        Refusal::Unidentified,
        Refusal::Expired,
        Refusal::Taken,
    ];

    /// The word for it, in answers and figures.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Refusal::Unknown => "unknown",
            Refusal::Weaker => "weaker",
            Refusal::Token => "token",
            Refusal::Transport => "transport",
            Refusal::Wrong => "name",
            Refusal::Busy => "busy",
            Refusal::Many => "names",
            Refusal::Unidentified => "identity",
            Refusal::Expired => "expired",
            Refusal::Taken => "taken",
        }
    }
}

/// How many greetings were refused, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refusals([u64; Refusal::ALL.len()]);

impl Refusals {
    pub(crate) fn note(&mut self, refusal: Refusal) {
        self.0[refusal as usize] += 1;
    }

    /// Each word, and how many there were.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Refusal::ALL.into_iter().map(Refusal::word).zip(self.0)
    }

    pub(crate) fn sum(&self) -> u64 {
        self.0.iter().sum()
    }

    pub(crate) fn plus(mut self, other: &Refusals) -> Refusals {
        self.0.iter_mut().zip(other.0).for_each(|(own, one)| *own += one);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_own_count() {
        let mut refusals = Refusals::default();
        for (place, refusal) in Refusal::ALL.into_iter().enumerate() {
            assert_eq!(refusal as usize, place);
            (0..=place).for_each(|_| refusals.note(refusal));
        }
        let both = refusals.plus(&refusals);
        let counts: Vec<u64> = both.each().map(|(_, count)| count).collect();
        assert_eq!(counts, [2, 4, 6, 8, 10, 12, 14, 16, 18, 20]);
        assert_eq!(both.sum(), 110);
        assert_eq!(both.each().nth(2), Some(("token", 6)));
    }
}
