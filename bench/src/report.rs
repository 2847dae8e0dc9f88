//! Report of a run, as a table for people and as JSON for programs.

use std::fmt;

use serde_json::{Map, Value};

/// Named figures in the order in which they were found, and the faults.
#[derive(Clone, Debug)]
pub struct Report {
    /// Mode of the run.
    pub title: String,
    rows: Vec<(&'static str, Value)>,
    /// Faults, each a sentence. Any of them makes the exit code 1.
    pub faults: Vec<String>,
}

impl Report {
    /// An empty report.
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            rows: Vec::new(),
            faults: Vec::new(),
        }
    }

    /// Adds a count.
    pub fn count(&mut self, name: &'static str, count: u64) {
        self.rows.push((name, count.into()));
    }

    /// Adds a measure, rounded to four significant digits, or to a whole number if it has more.
    pub fn measure(&mut self, name: &'static str, value: f64) {
        let digits = 3 - value.abs().max(1e-9).log10().floor() as i32;
        let scale = 10_f64.powi(digits.clamp(0, 9));
        self.rows
            .push((name, ((value * scale).round() / scale).into()));
    }

    /// Adds a measure that is greater than what is counted: the machine was busy with something else.
    pub fn beyond(&mut self, name: &'static str) {
        self.rows.push((name, "beyond the scale".into()));
    }

    /// Adds figures under one name.
    pub fn object(&mut self, name: &'static str, figures: Value) {
        self.rows.push((name, figures));
    }

    /// Adds a fault.
    pub fn fault(&mut self, sentence: impl Into<String>) {
        self.faults.push(sentence.into());
    }

    /// Returns a figure by its name.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.rows.iter().find(|(row, _)| *row == name)?.1.as_f64()
    }

    /// Returns the report as one JSON object.
    pub fn json(&self) -> Value {
        let mut object = Map::new();
        object.insert("run".into(), self.title.clone().into());
        object.extend(
            self.rows
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value.clone())),
        );
        object.insert("faults".into(), self.faults.clone().into());
        object.into()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title)?;
        for (name, value) in &self.rows {
            writeln!(
                f,
                "  {:<34} {:>14}",
                name.replace('_', " "),
                value.to_string()
            )?;
        }
        self.faults
            .iter()
            .try_for_each(|fault| writeln!(f, "  FAULT: {fault}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_four_digits_and_their_order() {
        let mut report = Report::new("a run");
        report.measure("large", 12_345.678);
        report.measure("small", 0.000_123_456);
        report.count("calls", 3);
        report.fault("a call failed");
        let text = report.json().to_string();
        assert_eq!(report.value("large"), Some(12_346.0));
        assert_eq!(report.value("small"), Some(0.000_123_5));
        assert!(text.contains("\"calls\":3") && text.contains("\"faults\":[\"a call failed\"]"));
        assert!(report.to_string().contains("FAULT: a call failed"));
    }
}
