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
        numbers!(@of_rate $Policy $new $($number)*);

        #[cfg(feature = "serde")]
        const _: () = {
            use crate::fields::OfRate;

            field_types! {
                rate: String,
                $($more_field: <$More as crate::fields::Field>::Written,)*
            }

            #[derive(serde::Serialize, serde::Deserialize)]
            #[serde(deny_unknown_fields)]
            struct Fields {
                rate: rate,
                $($more_field: Option<$more_field>,)*
                $(
                    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
                    $aligned: bool,
                )?
            }

            impl From<&$Policy> for Fields {
                fn from(policy: &$Policy) -> Self {
                    Self {
                        rate: rate { value: policy.rate_text() },
                        $($more_field: Some($more_field { value: crate::fields::Field::written(policy.$more()) }),)*
                        $($aligned: policy.$is_aligned(),)?
                    }
                }
            }

            impl TryFrom<Fields> for $Policy {
                type Error = String;

                fn try_from(fields: Fields) -> std::result::Result<Self, String> {
                    let in_field = |name| move |reason| format!("`{name}`: {reason}");
                    let policy: Self = OfRate::read(&fields.rate.value).map_err(in_field("rate"))?;
                    $(let policy = match fields.$more_field {
                        Some(written) => {
                            let read = crate::fields::Field::read(written.value);
                            policy.$with(read.map_err(in_field(stringify!($more_field)))?)
                        }
                        None => policy,
                    };)*
                    $(let policy = match fields.$aligned {
                        true => policy.$aligned(),
                        false => policy,
                    };)?
                    Ok(policy)
                }
            }

            as_fields!(
                $Policy,
                Fields,
                crate::policies::model::Model::validate,
                [
                    $((stringify!($number), "rate"),)*
                    $((stringify!($more), stringify!($more_field)),)*
                ]
            );
        };
    };
    (@of_rate $Policy:ident new $quantity:ident $period:ident) => {
        impl crate::fields::OfRate for $Policy {
            fn rate_parts(&self) -> (u32, std::time::Duration) {
                (self.$quantity, self.$period)
            }

            fn of_rate(quantity: u32, period: std::time::Duration) -> Result<Self, String> {
                Ok(Self::new(quantity, period))
            }
        }
    };
    (@of_rate $Policy:ident per_second $quantity:ident) => {
        impl crate::fields::OfRate for $Policy {
            fn rate_parts(&self) -> (u32, std::time::Duration) {
                (self.$quantity, std::time::Duration::from_secs(1))
            }

            fn of_rate(quantity: u32, period: std::time::Duration) -> Result<Self, String> {
                match period == std::time::Duration::from_secs(1) {
                    true => Ok(Self::per_second(quantity)),
                    false => Err("must be of a second, such as \"10/s\": a `gcra` has any period".to_owned()),
                }
            }
        }
    };
}
