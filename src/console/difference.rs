//! Line by line difference of two short texts.

/// Lines of each text that are compared; further ones are left out.
const MOST_LINES: usize = 200;

/// A line, and the text that has it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Line<'t> {
    Both(&'t str),
    Before(&'t str),
    After(&'t str),
}

/// Compares two texts by their longest common subsequence of lines.
pub(super) fn compared<'t>(before: &'t str, after: &'t str) -> Vec<Line<'t>> {
    // Bounded, because the table has a cell for each pair of lines, and peers write the SDP that is compared.
    let before: Vec<&str> = before.lines().take(MOST_LINES).collect();
    let after: Vec<&str> = after.lines().take(MOST_LINES).collect();

    // Length of the longest common subsequence of the rests that begin at each pair of lines.
    let mut common = vec![vec![0_u32; after.len() + 1]; before.len() + 1];
    for (at, line) in before.iter().enumerate().rev() {
        for (beside, other) in after.iter().enumerate().rev() {
            common[at][beside] = match line == other {
                true => common[at + 1][beside + 1] + 1,
                false => common[at + 1][beside].max(common[at][beside + 1]),
            };
        }
    }

    let (mut at, mut beside) = (0, 0);
    let mut lines = Vec::new();
    while at < before.len() || beside < after.len() {
        match (before.get(at), after.get(beside)) {
            (Some(line), Some(other)) if line == other => {
                lines.push(Line::Both(line));
                (at, beside) = (at + 1, beside + 1);
            }
            (Some(line), other)
                if other.is_none() || common[at + 1][beside] >= common[at][beside + 1] =>
            {
                lines.push(Line::Before(line));
                at += 1;
            }
            (_, Some(other)) => {
                lines.push(Line::After(other));
                beside += 1;
            }
            (Some(_) | None, None) => break,
        }
    }

    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_both_or_one_sides() {
        let found = compared("a\nb\nc", "a\nx\nc\nd");
        let expected = [
            Line::Both("a"),
            Line::Before("b"),
            Line::After("x"),
            Line::Both("c"),
            Line::After("d"),
        ];
        assert_eq!(found, expected);
        assert_eq!(compared("a", ""), [Line::Before("a")]);
        assert_eq!(compared("", ""), []);
    }
}
