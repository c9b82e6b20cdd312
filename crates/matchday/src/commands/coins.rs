//! What an operator does about coins.

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use matchday::{
    app::App,
    config::Config,
    game::coins::{
        audit::{Difference, Totals},
        ledger::Refusal,
        rules::{CoinAmount, Reference, Remark, TransactionId},
        service::{Candidate, OperatorError},
    },
};
use time::format_description::well_known::Rfc3339;

use super::{check_schema, counted, print, progress_bar};

#[derive(Subcommand)]
pub(crate) enum CoinsCommand {
    /// Prove that every wallet is what its history makes it; name what is not.
    Audit,
    /// Give somebody coins.
    Grant {
        #[command(flatten)]
        arguments: MovementArguments,
        /// A name of yours for it: it happens once, however often you ask.
        #[arg(long)]
        reference: Option<Reference>,
    },
    /// Take a transaction back, wholly or in part, by a new one that names it.
    Reverse {
        #[command(flatten)]
        arguments: MovementArguments,
        /// Which, if the amount alone does not tell.
        #[arg(long)]
        transaction: Option<TransactionId>,
    },
}

#[derive(Args)]
pub(crate) struct MovementArguments {
    /// An id or a username.
    user: String,
    /// How many coins.
    amount: CoinAmount,
    /// Why; it is kept, and the user can read it.
    #[arg(long)]
    reason: Remark,
    /// Who does it; it is kept too.
    #[arg(long = "by", default_value = "the command line")]
    operator: String,
}

pub(super) async fn coins(config: Config, command: CoinsCommand) -> anyhow::Result<()> {
    let app = App::connect(config).await?;
    check_schema(&app).await?;
    match command {
        CoinsCommand::Audit => audit(&app).await,
        CoinsCommand::Grant { arguments, reference } => grant(&app, arguments, reference.as_ref()).await,
        CoinsCommand::Reverse { arguments, transaction } => reverse(&app, arguments, transaction).await,
    }
}

async fn grant(app: &App, wish: MovementArguments, reference: Option<&Reference>) -> anyhow::Result<()> {
    let user = app.moderation.user(&wish.user).await.with_context(|| wish.user.clone())?;
    let granted = app.coins.grant(user, wish.amount, &wish.reason, reference, &wish.operator).await;
    let (granted, is_new) = granted.map_err(|error| match error {
        OperatorError::Refused(Refusal::OtherAmount) => {
            anyhow::anyhow!("{} was granted another amount under this reference; nothing was granted", wish.user)
        }
        other => unsure(other),
    })?;
    if !is_new {
        return print(&format!(
            "{} (user {user}) was granted that before, by {}; nothing changed",
            wish.user, granted.id
        ));
    }
    print(&format!("{} (user {user}) has {} coins after {}", wish.user, granted.balance, granted.id))
}

async fn reverse(app: &App, wish: MovementArguments, transaction: Option<TransactionId>) -> anyhow::Result<()> {
    let user = app.moderation.user(&wish.user).await.with_context(|| wish.user.clone())?;
    let reversed = app.coins.reverse(user, wish.amount, transaction, &wish.reason, &wish.operator).await;
    let (meant, reversed) = reversed.map_err(|error| match error {
        OperatorError::Ambiguous(candidates) => {
            let lines: Vec<String> = candidates.iter().map(candidate_line).collect();
            anyhow::anyhow!(
                "{} has several transactions of {} coins, the last ones are these; say which with --transaction:\n{}",
                wish.user,
                wish.amount.coins(),
                lines.join("\n")
            )
        }
        OperatorError::NoSuchTransaction => anyhow::anyhow!(
            "{} has no such transaction that was not taken back; `--transaction` names one for a part of its amount",
            wish.user
        ),
        other => unsure(other),
    })?;
    let coins = counted(usize::try_from(wish.amount.coins()).unwrap_or_default(), "coin");
    let balance = reversed.balance;
    print(&format!(
        "{coins} of {meant} taken back; {} (user {user}) has {balance} coins after {}",
        wish.user, reversed.id
    ))
}

/// Where the connection broke, nobody knows whether it was done.
fn unsure(error: OperatorError) -> anyhow::Error {
    match error {
        OperatorError::Database(error) => anyhow::Error::new(error)
            .context("it may have been done or not: look at the user's history before you try again"),
        other => other.into(),
    }
}

fn candidate_line(candidate: &Candidate) -> String {
    let when = candidate.created_at.replace_nanosecond(0).unwrap_or(candidate.created_at);
    let when = when.format(&Rfc3339).unwrap_or_default();
    format!("  {} {when} {} {:+}", candidate.id, candidate.kind.name(), candidate.amount)
}

async fn audit(app: &App) -> anyhow::Result<()> {
    let bar = progress_bar(0, "wallets");
    let progress = |done: i64, of: i64| {
        bar.set_length(of.unsigned_abs());
        bar.set_position(done.unsigned_abs());
    };
    let mut found = 0_usize;
    let mut failed = None;
    let audited = app.coins.audit(progress, |difference| {
        found += 1;
        // Printed at once: an audit of millions takes a while, and the first difference is what matters.
        if failed.is_none() {
            failed = bar.suspend(|| print(&line(&difference))).err();
        }
    });
    let totals = audited.await.context("not everything was looked at; run it again")?;
    bar.finish_and_clear();
    if let Some(error) = failed {
        return Err(error);
    }
    print(&told(&totals))?;
    if found > 0 {
        bail!(
            "{} found; all entries together add up to {}; nothing was changed",
            counted(found, "difference"),
            totals.sum()
        );
    }
    print("every wallet is what its history makes it")
}

fn line(difference: &Difference) -> String {
    match difference.number {
        Some(number) => format!("user {}, transaction {number}: {}", difference.user, difference.fault),
        None => format!("user {}: {}", difference.user, difference.fault),
    }
}

fn told(totals: &Totals) -> String {
    let accounts: Vec<String> = totals.accounts.iter().map(|(account, amount)| format!("{account} {amount}")).collect();
    let counted = |number: i64, thing| counted(usize::try_from(number).unwrap_or_default(), thing);
    format!(
        "{}, {}; accounts: {}",
        counted(totals.wallets, "wallet"),
        counted(totals.transactions, "transaction"),
        if accounts.is_empty() { "none".to_owned() } else { accounts.join(", ") },
    )
}
