//! What follows from the numbers of a policy.

/// Generates getters, `Display` and, with the feature `serde`, the fields of a policy, from the
/// text that it is printed as and its numbers. The first block has the name of the constructor and
/// its parameters, which the field `rate` holds. The block `with` has the numbers that a
/// constructor presets, each with the name of its field and the method that sets it. The last line
/// is for a policy that can be aligned to the clock: what starts then, and what must be a whole
/// number of seconds.
macro_rules! numbers {
    (
        $Policy:ident, $text:literal;
        $new:ident { $($(#[$doc:meta])* $number:ident: $Number:ty,)* }
        with { $($(#[$more_doc:meta])* $more:ident: $More:ty = $more_field:ident by $with:ident,)* }
        $($aligned:ident, $is_aligned:ident = $starts:ident: $what:literal, $length:literal;)?
    ) => {
        impl $Policy {
            $(
                $(#[$doc])*
                #[must_use]
                pub fn $number(&self) -> $Number {
                    self.$number
                }
            )*
            $(
                $(#[$more_doc])*
                #[must_use]
                pub fn $more(&self) -> $More {
                    self.$more
                }
            )*
            $(
                #[doc = concat!(
                    "Starts ", $what, " at the beginning of the second, minute, hour or day (UTC) of its first request: the ",
                    "largest of these units that divides ", $length, " evenly. One that is not a whole number of seconds is ",
                    "refused.",
                )]
                ///
                /// ```
                /// # use redisson_rate_limiter::*;
                /// # use std::time::Duration;
                #[doc = concat!(
                    "let policy = ", stringify!($Policy), "::new(100, Duration::from_secs(60)).aligned_to_clock();",
                )]
                /// assert!(policy.is_aligned_to_clock());
                /// ```
                #[must_use]
                pub fn $aligned(self) -> Self {
                    Self {
                        $starts: crate::policies::starts::Starts::AlignedToClock,
                        ..self
                    }
                }

                #[doc = concat!("Whether ", $what, " starts [aligned to the clock](Self::aligned_to_clock).")]
                #[must_use]
                pub fn $is_aligned(&self) -> bool {
                    self.$starts == crate::policies::starts::Starts::AlignedToClock
                }
            )?
        }

        impl std::fmt::Display for $Policy {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let Self { $($number,)* $($more,)* $($starts,)? .. } = self;
                write!(f, $text)
            }
        }

        #[cfg(feature = "serde")]
        impl crate::fields::AsFields for $Policy {
            const FIELDS: &[&str] =
                &["rate", $(stringify!($more_field),)* $(stringify!($aligned))?];
            const ARGUMENTS: &[(&str, &str)] = &[
                $((stringify!($number), "rate"),)*
                $((stringify!($more), stringify!($more_field)),)*
            ];

            fn check(&self) -> crate::error::Result<()> {
                crate::policies::model::Model::validate(self)
            }

            fn write(&self, fields: &mut crate::fields::Fields) {
                fields.put("rate", numbers!(@rate_of self $new $($number)*));
                $(fields.put(stringify!($more_field), self.$more);)*
                $(if self.$is_aligned() {
                    fields.put(stringify!($aligned), true);
                })?
            }

            fn read(fields: &mut crate::fields::Fields) -> Result<Self, String> {
                let crate::fields::PerTime(quantity, period) = fields.require("rate")?;
                let policy = numbers!(@of_rate $new quantity period);
                $(let policy = match fields.take(stringify!($more_field))? {
                    Some($more) => policy.$with($more),
                    None => policy,
                };)*
                $(let policy = match fields.take(stringify!($aligned))? {
                    Some(true) => policy.$aligned(),
                    _ => policy,
                };)?
                Ok(policy)
            }
        }

        #[cfg(feature = "serde")]
        as_fields!($Policy);
    };
    (@rate_of $policy:ident new $quantity:ident $period:ident) => {
        crate::fields::PerTime($policy.$quantity, $policy.$period)
    };
    (@rate_of $policy:ident per_second $quantity:ident) => {
        crate::fields::PerTime($policy.$quantity, std::time::Duration::from_secs(1))
    };
    (@of_rate new $quantity:ident $period:ident) => {
        Self::new($quantity, $period)
    };
    (@of_rate per_second $quantity:ident $period:ident) => {
        match $period == std::time::Duration::from_secs(1) {
            true => Self::per_second($quantity),
            false => {
                let reason = "must be of a second, such as \"10/s\": a `gcra` has any period";
                return Err(format!("`rate`: {reason}"));
            }
        }
    };
}
