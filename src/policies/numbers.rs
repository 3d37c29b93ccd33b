//! What follows from the numbers of a policy.

/// For a policy, from the text that it is printed as and its numbers: getters, `Display`, and with
/// the feature `serde` its fields. `new` has those of the constructor of this name, `with` those
/// that it sets otherwise unless they are left out, each by a method. A number stands with its
/// name, its type and the name of its field. The last line is for a policy that can be aligned to
/// the clock: what starts then, and what is a whole number of seconds.
macro_rules! numbers {
    (
        $Policy:ident, $text:literal;
        $new:ident { $($(#[$doc:meta])* $number:ident: $Number:ty = $field:ident,)* }
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
        const _: () = {
            use crate::fields::Field;

            field_types! {
                $($field: <$Number as Field>::Written,)*
                $($more_field: <$More as Field>::Written,)*
            }

            #[derive(serde::Serialize, serde::Deserialize)]
            #[serde(deny_unknown_fields)]
            struct Fields {
                $($field: $field,)*
                $($more_field: Option<$more_field>,)*
                $(
                    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
                    $aligned: bool,
                )?
            }

            impl From<&$Policy> for Fields {
                fn from(policy: &$Policy) -> Self {
                    Self {
                        $($field: $field { value: policy.$number().written() },)*
                        $($more_field: Some($more_field { value: policy.$more().written() }),)*
                        $($aligned: policy.$is_aligned(),)?
                    }
                }
            }

            impl From<Fields> for $Policy {
                fn from(fields: Fields) -> Self {
                    let policy = Self::$new($(Field::read(fields.$field.value),)*);
                    $(let policy = match fields.$more_field {
                        Some(written) => policy.$with(Field::read(written.value)),
                        None => policy,
                    };)*
                    $(let policy = match fields.$aligned {
                        true => policy.$aligned(),
                        false => policy,
                    };)?
                    policy
                }
            }

            as_fields!(
                $Policy,
                Fields,
                crate::policies::algorithm::Model::validate,
                [
                    $((stringify!($number), stringify!($field)),)*
                    $((stringify!($more), stringify!($more_field)),)*
                ]
            );
        };
    };
}
