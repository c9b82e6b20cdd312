//! `matchday coins`: audit the ledger, grant coins, reverse transactions.

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
    /// Verify that every wallet equals the sum of its history, and print each difference.
    Audit,
    /// Grant coins to a user.
    Grant {
        #[command(flatten)]
        arguments: MovementArguments,
        /// Your own reference. A grant with the same reference is performed once, however often you repeat it.
        #[arg(long)]
        reference: Option<Reference>,
    },
    /// Reverse a transaction, fully or in part, with a new transaction that refers to it.
    Reverse {
        #[command(flatten)]
        arguments: MovementArguments,
        /// Transaction to reverse; required if several have the same amount.
        #[arg(long)]
        transaction: Option<TransactionId>,
    },
}

#[derive(Args)]
pub(crate) struct MovementArguments {
    /// User id or username.
    user: String,
    /// Number of coins to move.
    amount: CoinAmount,
    /// Reason, stored with the transaction and visible to the user.
    #[arg(long)]
    reason: Remark,
    /// Name of the operator, stored with the transaction.
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

async fn grant(app: &App, arguments: MovementArguments, reference: Option<&Reference>) -> anyhow::Result<()> {
    let user = app.moderation.user(&arguments.user).await.with_context(|| arguments.user.clone())?;
    let granted = app.coins.grant(user, arguments.amount, &arguments.reason, reference, &arguments.operator).await;
    let (granted, is_new) = granted.map_err(|error| match error {
        OperatorError::Refused(Refusal::OtherAmount) => {
            anyhow::anyhow!("{} was granted another amount with this reference; nothing was granted", arguments.user)
        }
        OperatorError::Refused(Refusal::Reversed) => {
            anyhow::anyhow!("the grant of {} with this reference was reversed; nothing was granted", arguments.user)
        }
        other => warn_of_uncertain_outcome(other),
    })?;
    if !is_new {
        return print(&format!(
            "{} (user {user}) was granted this before, by {}; nothing changed",
            arguments.user, granted.id
        ));
    }
    print(&format!("{} (user {user}) has {} coins after {}", arguments.user, granted.balance, granted.id))
}

async fn reverse(app: &App, arguments: MovementArguments, transaction: Option<TransactionId>) -> anyhow::Result<()> {
    let user = app.moderation.user(&arguments.user).await.with_context(|| arguments.user.clone())?;
    let reversed = app.coins.reverse(user, arguments.amount, transaction, &arguments.reason, &arguments.operator).await;
    let (meant, reversed) = reversed.map_err(|error| match error {
        OperatorError::Ambiguous(candidates) => {
            let lines: Vec<String> = candidates.iter().map(candidate_line).collect();
            anyhow::anyhow!(
                "{} has several transactions of {} coins; choose one with --transaction. The latest are:\n{}",
                arguments.user,
                arguments.amount.coins(),
                lines.join("\n")
            )
        }
        OperatorError::NoSuchTransaction => anyhow::anyhow!(
            "{} has no transaction of this amount left to reverse; use --transaction to reverse one in part",
            arguments.user
        ),
        other => warn_of_uncertain_outcome(other),
    })?;
    let coins = counted(usize::try_from(arguments.amount.coins()).unwrap_or_default(), "coin");
    let balance = reversed.balance;
    print(&format!(
        "reversed {coins} of {meant}; {} (user {user}) has {balance} coins after {}",
        arguments.user, reversed.id
    ))
}

/// Adds a warning to database errors: after a lost connection the transaction may have been committed.
fn warn_of_uncertain_outcome(error: OperatorError) -> anyhow::Error {
    match error {
        OperatorError::Database(error) => {
            anyhow::Error::new(error).context("the outcome is unknown: check the user's history before you try again")
        }
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
        // Print immediately: an audit of millions of wallets takes a while, and the first difference matters most.
        if failed.is_none() {
            failed = bar.suspend(|| print(&line(&difference))).err();
        }
    });
    let totals = audited.await.context("the audit is incomplete; run it again")?;
    bar.finish_and_clear();
    if let Some(error) = failed {
        return Err(error);
    }
    print(&summary(&totals))?;
    if found > 0 {
        bail!(
            "{} found; all entries together add up to {}; nothing was changed",
            counted(found, "difference"),
            totals.sum()
        );
    }
    print("every wallet matches its history")
}

fn line(difference: &Difference) -> String {
    match difference.number {
        Some(number) => format!("user {}, transaction {number}: {}", difference.user, difference.fault),
        None => format!("user {}: {}", difference.user, difference.fault),
    }
}

fn summary(totals: &Totals) -> String {
    let accounts: Vec<String> = totals.accounts.iter().map(|(account, amount)| format!("{account} {amount}")).collect();
    let counted = |number: i64, thing| counted(usize::try_from(number).unwrap_or_default(), thing);
    format!(
        "{}, {}; accounts: {}",
        counted(totals.wallets, "wallet"),
        counted(totals.transactions, "transaction"),
        if accounts.is_empty() { "none".to_owned() } else { accounts.join(", ") },
    )
}
