//! What several benchmarks share: how they sum up and show numbers, the parts of a page, pictures,
//! the CPU time of processes, what scripts have cost, and the largest log.

pub mod bars;
pub mod blocks;
pub mod cpu;
pub mod scripts;

use std::time::Duration;

/// A SlidingWindowLog keeps a member for each request, and has an upper limit: with this window
/// nobody reaches it.
pub const LARGEST_LOG: (u32, Duration) = (20_000, Duration::from_millis(2));

/// With a comma after each three digits.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// To three significant digits.
pub fn rounded(number: f64) -> u64 {
    let unit = 10_f64.powi((number.max(1.0).log10() as i32 - 2).max(0));
    ((number / unit).round() * unit) as u64
}

/// The one in the middle, or the mean of the two in the middle.
pub fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    if numbers.len() % 2 == 1 {
        numbers[middle]
    } else {
        (numbers[middle - 1] + numbers[middle]) / 2.0
    }
}

/// Half of the range, as a part of the median.
pub fn spread(numbers: &[f64]) -> f64 {
    let least = numbers.iter().copied().fold(f64::MAX, f64::min);
    let most = numbers.iter().copied().fold(0.0, f64::max);
    (most - least) / 2.0 / median(numbers.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_three_digits_are_set_apart() {
        let numbers = [0, 999, 1_000, 123_456, 1_234_567].map(thousands);
        assert_eq!(numbers, ["0", "999", "1,000", "123,456", "1,234,567"]);
    }

    #[test]
    fn three_digits_count() {
        let numbers = [0.4, 7.6, 999.4, 1_234.0, 987_654.0].map(rounded);
        assert_eq!(numbers, [0, 8, 999, 1_230, 988_000]);
    }

    #[test]
    fn a_median_has_as_many_numbers_below_it_as_above() {
        assert_eq!(median(vec![9.0, 1.0, 4.0]), 4.0);
        assert_eq!(median(vec![9.0, 1.0, 4.0, 6.0]), 5.0);
    }

    #[test]
    fn a_spread_is_half_of_the_range_beside_the_median() {
        assert_eq!(spread(&[4.0, 2.0, 6.0]), 0.5);
    }
}
