//! Limit of open files of this process. Each connection needs one.

use std::fs;

use crate::settings::Http;

/// Files that a process opens in addition to client connections: connections to dependencies, listeners, event queues.
const RESERVED: usize = 200;

/// Logs a warning if the process may open fewer files than `http.max_connections` requires. Connections above the limit
/// would wait in the kernel's queue, as they do above `http.max_connections`, but the log should name the cause.
pub fn warn_of_low_limit(config: &Http) {
    let Some(limit) = fs::read_to_string("/proc/self/limits").ok().and_then(|limits| soft_limit(&limits)) else {
        return; // unlimited, or not Linux
    };
    if limit < config.max_connections.saturating_add(RESERVED) {
        tracing::warn!(
            limit,
            max_connections = config.max_connections,
            "limit of open files is too low for http.max_connections"
        );
    }
}

/// Current limit in the format of `/proc/self/limits`, or `None` if there is none.
fn soft_limit(limits: &str) -> Option<usize> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_soft_limit_of_open_files() {
        let limits = |soft: &str| {
            format!(
                "Limit                     Soft Limit           Hard Limit           Units     \n\
                 Max processes             96343                96343                processes \n\
                 Max open files            {soft}                 524288               files     \n"
            )
        };
        assert_eq!(soft_limit(&limits("1024")), Some(1024));
        assert_eq!(soft_limit(&limits("unlimited")), None);
        assert_eq!(soft_limit(""), None);
    }
}
