//! Means and their intervals, for few repetitions.

/// The 97.5 % points of Student's distribution, by degrees of freedom from 1.
const STUDENT_975: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];
/// Beyond the table.
const NORMAL_975: f64 = 1.960;

/// The arithmetic mean; 0 of nothing.
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// Half of the mean's 95 % interval; nothing from fewer than two values.
pub fn half_width_95(values: &[f64]) -> Option<f64> {
    let n = values.len();
    if n < 2 {
        return None;
    }
    let middle = mean(values);
    let variance = values.iter().map(|value| (value - middle).powi(2)).sum::<f64>() / (n - 1) as f64;
    let factor = STUDENT_975.get(n - 2).copied().unwrap_or(NORMAL_975);
    Some(factor * (variance / n as f64).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_three_values_is_student_s() {
        // Mean 2, deviation 1, two degrees of freedom: 4.303 / sqrt(3).
        let half = half_width_95(&[1.0, 2.0, 3.0]).unwrap_or_default();
        assert!((half - 2.4843).abs() < 1e-3, "{half}");
        assert_eq!(half_width_95(&[1.0]), None);
        assert_eq!(mean(&[]), 0.0);
    }
}
