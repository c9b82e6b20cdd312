//! Pages of lists: `page` and `per_page` in, `meta` out; or, for lists that grow while they are read, `cursor` and
//! `per_page`.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use super::fields::{FromParameters, FromQuery, Parameters};

/// More than this on one page is served as this.
const MOST_PER_PAGE: i64 = 100;

/// Which page of a list is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Paging {
    /// Which page; the first is 1.
    #[param(value_type = Option<i64>, minimum = 1, default = 1, example = 1)]
    page: i64,
    /// How many items a page has; more than 100 is served as 100.
    #[param(value_type = Option<i64>, minimum = 1, default = 20, example = 20)]
    per_page: i64,
}

impl Paging {
    /// The first so many, for those who are not asked by a client.
    pub fn first(number: i64) -> Self {
        Self { page: 1, per_page: number }
    }

    /// How many rows come before the page.
    pub fn offset(self) -> i64 {
        (self.page - 1).saturating_mul(self.per_page)
    }

    /// How many rows the page has at most.
    pub fn limit(self) -> i64 {
        self.per_page
    }

    /// What the answer says of the page.
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
    fn from_parameters(parameters: &mut Parameters) -> Option<Self> {
        read(parameters, 20).map(|(page, per_page)| Self { page, per_page })
    }
}

/// [`Paging`] for a list of small items: 50 per page by default.
#[derive(Clone, Copy, Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct LongPaging {
    /// Which page; the first is 1.
    #[param(value_type = Option<i64>, minimum = 1, default = 1, example = 1)]
    page: i64,
    /// How many items a page has; more than 100 is served as 100.
    #[param(value_type = Option<i64>, minimum = 1, default = 50, example = 50)]
    per_page: i64,
}

impl FromParameters for LongPaging {
    fn from_parameters(parameters: &mut Parameters) -> Option<Self> {
        read(parameters, 50).map(|(page, per_page)| Self { page, per_page })
    }
}

impl From<LongPaging> for Paging {
    fn from(LongPaging { page, per_page }: LongPaging) -> Self {
        Self { page, per_page }
    }
}

/// Reads `page` and `per_page`.
fn read(parameters: &mut Parameters, usual: i64) -> Option<(i64, i64)> {
    let page = parameters.optional::<Ordinal>("page");
    let per_page = parameters.optional::<Ordinal>("per_page");
    Some((page?.map_or(1, |Ordinal(page)| page), per_page?.map_or(usual, |Ordinal(size)| size.min(MOST_PER_PAGE))))
}

struct Ordinal(i64);

impl FromQuery for Ordinal {
    const EXPECTED: &'static str = "must be a whole number from 1";

    fn from_query(text: &str) -> Option<Self> {
        text.parse().ok().filter(|&number| number >= 1).map(Self)
    }
}

/// Size of a list that has no further pages.
#[derive(Clone, Copy, Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Top {
    /// How many to show at the top; more than 100 is served as 100.
    #[param(value_type = Option<i64>, minimum = 1, default = 20, example = 20)]
    pub per_page: i64,
}

impl FromParameters for Top {
    fn from_parameters(parameters: &mut Parameters) -> Option<Self> {
        let per_page = parameters.optional::<Ordinal>("per_page")?;
        Some(Self { per_page: per_page.map_or(20, |Ordinal(size)| size.min(MOST_PER_PAGE)) })
    }
}

/// Where a page stands in its list.
#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(example = json!({"current_page": 1, "last_page": 3, "per_page": 20, "total": 51}))]
pub struct PageMeta {
    /// The page that was asked for.
    pub current_page: i64,
    /// The last page that has items, at least 1.
    pub last_page: i64,
    /// How many items a page has at most.
    pub per_page: i64,
    /// How many items there are on all pages.
    pub total: i64,
}

/// A place in a list, opaque to clients: right after the item with this id. Going on from here
/// repeats no item and leaves none out that was there, whatever is added; one that is being added at this very moment may
/// get its id before it can be seen, and be passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor(i64);

impl Cursor {
    /// The place right after the item with this id.
    pub fn after(id: i64) -> Self {
        Self(id)
    }

    /// The id of the item before the place.
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
    const EXPECTED: &'static str = "must be one that an answer gave";

    fn from_query(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        Some(i64::from_be_bytes(bytes.try_into().ok()?)).filter(|&id| id >= 1).map(Self)
    }
}

/// Which part of a list with cursors is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct CursorPaging {
    /// How many items to answer with; more than 100 is served as 100.
    #[param(rename = "per_page", value_type = Option<i64>, minimum = 1, default = 100, example = 100)]
    pub limit: i64,
    /// The `next_cursor` of the answer before.
    #[param(rename = "cursor", value_type = Option<String>, example = "AAAAAAAAAGQ")]
    pub after: Option<Cursor>,
}

impl FromParameters for CursorPaging {
    fn from_parameters(parameters: &mut Parameters) -> Option<Self> {
        let per_page = parameters.optional::<Ordinal>("per_page");
        let after = parameters.optional("cursor");
        Some(Self { after: after?, limit: per_page?.map_or(MOST_PER_PAGE, |Ordinal(size)| size.min(MOST_PER_PAGE)) })
    }
}

/// Cuts off the one more that was read, and says where the next part begins if there was one.
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
    fn numbers_from_one_and_at_most_a_hundred() {
        assert_eq!(paging(""), Some(Paging { page: 1, per_page: 20 }));
        assert_eq!(paging("page=3&per_page=1000"), Some(Paging { page: 3, per_page: 100 }));
        for bad in ["page=0", "page=x", "page=-1", "page=1.5", "page=", "per_page=0", "per_page=99999999999999999999"] {
            assert_eq!(paging(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_cursor_is_one_that_was_given() {
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
        fn a_cursor_reads_back(id in 1_i64..) {
            prop_assert_eq!(Cursor::from_query(&Cursor::after(id).to_string()), Some(Cursor::after(id)));
        }

        #[test]
        fn whatever_is_read_as_a_cursor_is_written_so(text in prop_oneof![".*", "[A-Za-z0-9_-]{10,12}", "A{5}[A-Za-z0-9_-]{6}"]) {
            if let Some(cursor) = Cursor::from_query(&text) {
                prop_assert_eq!(cursor.to_string(), text);
            }
        }

        #[test]
        fn the_pages_cover_the_list_without_overlap(total in 0_i64..1_000, per_page in 1_i64..=100) {
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
        fn no_page_number_overflows(page in 1_i64.., per_page in 1_i64..=100) {
            let paging = Paging { page, per_page };
            prop_assert!(paging.offset() >= 0);
        }
    }
}
