//! This crate's client as `lua/python/lossy.py` and `dialogues.py` start clients: `line-client PORT
//! NAME` makes the calls that it reads, one a line, and prints what each returns. At the end of its
//! input it gives back what is to go back, and ends.

use std::env::args;
use std::error::Error;
use std::io::stdin;
use std::time::Duration;

use redisson_rate_limiter::{Decision, RedissonClient};

/// For an answer.
const TIME: Duration = Duration::from_secs(3);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let [port, name] = [1, 2].map(|place| args().nth(place).unwrap_or_default());
    let builder = RedissonClient::builder().response_timeout(TIME);
    let client = builder
        .connect(&format!("redis://127.0.0.1:{port}"))
        .await?;
    let limiter = client.rate_limiter(&name);
    let mut granted = None;
    for line in stdin().lines() {
        let line = line?;
        let returned = match line.split_once(' ') {
            Some(("check", permits)) => match limiter.check(permits.parse()?).await {
                Ok(Decision::Granted(it)) => {
                    granted = Some(it.grant);
                    Ok("True".to_owned())
                }
                Ok(_) => Ok("False".to_owned()),
                Err(error) => Err(error),
            },
            _ => match granted.take() {
                Some(grant) => limiter.refund(grant).await.map(|it| it.to_string()),
                None => Ok("0".to_owned()),
            },
        };
        match returned {
            Ok(returned) => println!("{returned}"),
            Err(error) => println!("error {}", error.to_string().replace('\n', " ")),
        }
    }
    client.close(10 * TIME).await;
    Ok(())
}
