//! Numbers as the page shows them.

pub fn factor(ratio: f64) -> String {
    match ratio {
        0.0..0.0995 => format!("1/{:.0}", 1.0 / ratio),
        0.0..9.95 => format!("{ratio:.2}×"),
        _ => format!("{ratio:.0}×"),
    }
}

pub fn micros(seconds: f64) -> String {
    match seconds * 1e6 {
        micros if micros < 10.0 => format!("{micros:.1} µs"),
        micros if micros < 1000.0 => format!("{micros:.0} µs"),
        micros => format!("{:.1} ms", micros / 1e3),
    }
}

pub fn bytes(bytes: f64) -> String {
    match bytes {
        0.0..1e4 => format!("{bytes:.0} B"),
        0.0..1e6 => format!("{:.0} kB", bytes / 1e3),
        _ => format!("{:.1} MB", bytes / 1e6),
    }
}
