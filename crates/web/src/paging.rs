//! Paging of lists: `page` and `per_page` with `meta`, or `cursor` and `per_page` for lists that grow while they are
//! read.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use super::fields::{FromParameters, FromQuery, Parameters};

/// Maximum page size. Larger values are reduced to it.
pub const MOST_PER_PAGE: i64 = 100;

/// Requested page of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Paging {
    /// Page number, starting at 1.
    #[param(value_type = Option<i64>, minimum = 1, default = 1, example = 1)]
    page: i64,
    /// Number of items per page. Values above 100 are treated as 100.
    #[param(value_type = Option<i64>, minimum = 1, default = 20, example = 20)]
    per_page: i64,
}

impl Paging {
    /// The first `number` items, for internal callers.
    pub fn first(number: i64) -> Self {
        Self { page: 1, per_page: number }
    }

    /// Number of rows before the page.
    pub fn offset(self) -> i64 {
        (self.page - 1).saturating_mul(self.per_page)
    }

    /// Maximum number of rows on the page.
    pub fn limit(self) -> i64 {
        self.per_page
    }

    /// Paging data of the response.
    pub fn meta(self, total: i64) -> PageMeta {
        PageMeta {
            current_page: self.page,
            last_page: ((total + self.per_page - 1) / self.per_page).max(1),
            per_page: self.per_page,
            total,
        }
    }
}

impl FromParameters for Paging {
    fn from_parameters(parameters: &mut Parameters<'_>) -> Option<Self> {
        read(parameters, 20).map(|(page, per_page)| Self { page, per_page })
    }
}

/// Like [`Paging`], for lists of small items: 50 per page by default.
#[derive(Clone, Copy, Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct LongPaging {
    /// Page number, starting at 1.
    #[param(value_type = Option<i64>, minimum = 1, default = 1, example = 1)]
    page: i64,
    /// Number of items per page. Values above 100 are treated as 100.
    #[param(value_type = Option<i64>, minimum = 1, default = 50, example = 50)]
    per_page: i64,
}

impl FromParameters for LongPaging {
    fn from_parameters(parameters: &mut Parameters<'_>) -> Option<Self> {
        read(parameters, 50).map(|(page, per_page)| Self { page, per_page })
    }
}

impl From<LongPaging> for Paging {
    fn from(LongPaging { page, per_page }: LongPaging) -> Self {
        Self { page, per_page }
    }
}

fn read(parameters: &mut Parameters<'_>, usual: i64) -> Option<(i64, i64)> {
    let page = parameters.optional::<Ordinal>("page");
    let per_page = parameters.optional::<Ordinal>("per_page");
    Some((page?.map_or(1, |Ordinal(page)| page), per_page?.map_or(usual, |Ordinal(size)| size.min(MOST_PER_PAGE))))
}

struct Ordinal(i64);

impl FromQuery for Ordinal {
    const EXPECTED: &'static str = "must be a positive integer";

    fn from_query(text: &str) -> Option<Self> {
        text.parse().ok().filter(|&number| number >= 1).map(Self)
    }
}

/// Size of a list that has no further pages.
#[derive(Clone, Copy, Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Top {
    /// Number of items at the top of the list. Values above 100 are treated as 100.
    #[param(value_type = Option<i64>, minimum = 1, default = 20, example = 20)]
    pub per_page: i64,
}

impl FromParameters for Top {
    fn from_parameters(parameters: &mut Parameters<'_>) -> Option<Self> {
        let per_page = parameters.optional::<Ordinal>("per_page")?;
        Some(Self { per_page: per_page.map_or(20, |Ordinal(size)| size.min(MOST_PER_PAGE)) })
    }
}

/// Position of a page in its list.
#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(example = json!({"current_page": 1, "last_page": 3, "per_page": 20, "total": 51}))]
pub struct PageMeta {
    /// Number of the requested page, from 1.
    pub current_page: i64,
    /// Last page that has items, at least 1.
    pub last_page: i64,
    /// Maximum number of items per page.
    pub per_page: i64,
    /// Number of items on all pages.
    pub total: i64,
}

/// A position in a list, opaque to clients: directly after the item with this id. Continuing from a cursor repeats no
/// item and skips no existing one, regardless of additions. An item that is being inserted at this moment may
/// get its id before it becomes visible, and then be skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor(i64);

impl Cursor {
    /// Position directly after the item with this id.
    pub fn after(id: i64) -> Self {
        Self(id)
    }

    /// Id of the item before the position.
    pub fn id(self) -> i64 {
        self.0
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0.to_be_bytes()))
    }
}

impl FromQuery for Cursor {
    const EXPECTED: &'static str = "must be a cursor from an earlier response";

    fn from_query(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        Some(i64::from_be_bytes(bytes.try_into().ok()?)).filter(|&id| id >= 1).map(Self)
    }
}

/// Requested part of a list with cursors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct CursorPaging {
    /// Number of items to return. Values above 100 are treated as 100.
    #[param(rename = "per_page", value_type = Option<i64>, minimum = 1, default = 100, example = 100)]
    pub limit: i64,
    /// Value of `next_cursor` in the previous response.
    #[param(rename = "cursor", value_type = Option<String>, example = "AAAAAAAAAGQ")]
    pub after: Option<Cursor>,
}

impl FromParameters for CursorPaging {
    fn from_parameters(parameters: &mut Parameters<'_>) -> Option<Self> {
        let per_page = parameters.optional::<Ordinal>("per_page");
        let after = parameters.optional("cursor");
        Some(Self { after: after?, limit: per_page?.map_or(MOST_PER_PAGE, |Ordinal(size)| size.min(MOST_PER_PAGE)) })
    }
}

/// Removes the extra item that was read to detect a next part, and returns the cursor of that part if there is one.
pub fn part<T>(mut items: Vec<T>, limit: i64, id: impl Fn(&T) -> i64) -> (Vec<T>, Option<Cursor>) {
    let wanted = usize::try_from(limit).unwrap_or(usize::MAX);
    let more = items.len() > wanted;
    items.truncate(wanted);
    let next = items.last().filter(|_| more).map(|last| Cursor::after(id(last)));
    (items, next)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn paging(query: &str) -> Option<Paging> {
        Parameters::parse::<Paging>(query).ok()
    }

    #[test]
    fn page_numbers_start_at_one_and_sizes_are_capped() {
        assert_eq!(paging(""), Some(Paging { page: 1, per_page: 20 }));
        assert_eq!(paging("page=3&per_page=1000"), Some(Paging { page: 3, per_page: 100 }));
        for bad in ["page=0", "page=x", "page=-1", "page=1.5", "page=", "per_page=0", "per_page=99999999999999999999"] {
            assert_eq!(paging(bad), None, "{bad}");
        }
    }

    #[test]
    fn forged_cursor_is_refused() {
        let read = |query: &str| Parameters::parse::<CursorPaging>(query).ok();
        assert_eq!(read(""), Some(CursorPaging { after: None, limit: 100 }));
        assert_eq!(read("per_page=101"), Some(CursorPaging { after: None, limit: 100 }));
        assert_eq!(
            read("per_page=7&cursor=AAAAAAAAAGQ"),
            Some(CursorPaging { after: Some(Cursor::after(100)), limit: 7 })
        );
        for bad in ["", "x", "100", "AAAAAAAAAGR", "AAAAAAAAAGQ=", "AAAAAAAAAAA", "__________8", "AAAAAAAAAGQA", "%00"]
        {
            assert_eq!(read(&format!("cursor={bad}")), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn cursor_round_trips(id in 1_i64..) {
            prop_assert_eq!(Cursor::from_query(&Cursor::after(id).to_string()), Some(Cursor::after(id)));
        }

        #[test]
        fn parsed_cursor_is_canonical(text in prop_oneof![".*", "[A-Za-z0-9_-]{10,12}", "A{5}[A-Za-z0-9_-]{6}"]) {
            if let Some(cursor) = Cursor::from_query(&text) {
                prop_assert_eq!(cursor.to_string(), text);
            }
        }

        #[test]
        fn pages_cover_the_list_without_overlap(total in 0_i64..1_000, per_page in 1_i64..=100) {
            let last = Paging { page: 1, per_page }.meta(total).last_page;
            let covered: i64 = (1..=last)
                .map(|page| Paging { page, per_page })
                .map(|paging| (total - paging.offset()).clamp(0, paging.limit()))
                .sum();
            prop_assert_eq!(covered, total);
            let last = Paging { page: last, per_page };
            prop_assert!(last.page == 1 || last.offset() < total);
        }

        #[test]
        fn huge_page_numbers_do_not_overflow(page in 1_i64.., per_page in 1_i64..=100) {
            let paging = Paging { page, per_page };
            prop_assert!(paging.offset() >= 0);
        }
    }
}
