//! Flags for the flavor-resource that a table of quota shows.

use anyhow::bail;

use crate::people::views::{self, FlavorResource};
use crate::visibility::views::QuotaView;

/// One flavor-resource.
#[derive(Debug, clap::Args)]
pub(super) struct ShownArgs {
    /// Resource; default: that with the highest use.
    #[arg(long)]
    resource: Option<String>,
    /// Flavor; default: that with the highest use.
    #[arg(long)]
    flavor: Option<String>,
}

impl ShownArgs {
    /// Returns the quotas of the flags. Fails if flags are given and there is none.
    fn matching<'a>(
        &self,
        quotas: impl IntoIterator<Item = &'a QuotaView>,
    ) -> anyhow::Result<Vec<&'a QuotaView>> {
        let is_wanted = |quota: &&QuotaView| {
            self.resource.as_ref().is_none_or(|name| *name == quota.resource)
                && self.flavor.as_ref().is_none_or(|name| *name == quota.flavor)
        };
        let found: Vec<&QuotaView> = quotas.into_iter().filter(is_wanted).collect();
        if found.is_empty() && (self.resource.is_some() || self.flavor.is_some()) {
            let wanted: Vec<&str> = self.resource.iter().chain(&self.flavor).map(String::as_str).collect();
            bail!("no quota for {}", wanted.join(" in "));
        }
        Ok(found)
    }

    /// Returns the flavor-resource of the flags, or the fullest one; `None` if there is no quota.
    pub(super) fn one<'a>(
        &self,
        quotas: impl IntoIterator<Item = &'a QuotaView>,
    ) -> anyhow::Result<Option<FlavorResource>> {
        Ok(views::default_flavor_resource(self.matching(quotas)?))
    }
}

/// One flavor-resource, or each in turn.
#[derive(Debug, clap::Args)]
pub(super) struct EachShownArgs {
    #[command(flatten)]
    shown: ShownArgs,
    /// Show each flavor-resource in turn; with --resource or --flavor, each that matches.
    #[arg(long)]
    all: bool,
}

impl EachShownArgs {
    /// Returns the flavor-resources in the order in which they are shown; none if there is no quota.
    pub(super) fn each<'a>(
        &self,
        quotas: impl IntoIterator<Item = &'a QuotaView>,
    ) -> anyhow::Result<Vec<FlavorResource>> {
        if self.all {
            return Ok(views::flavor_resources(self.shown.matching(quotas)?));
        }
        Ok(self.shown.one(quotas)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(flavor: &str, resource: &str) -> QuotaView {
        QuotaView { flavor: flavor.to_owned(), resource: resource.to_owned(), ..QuotaView::default() }
    }

    #[test]
    fn flags_select_and_all_shows_each_once() {
        let quotas = [quota("f", "cpu"), quota("f", "gpu"), quota("g", "gpu"), quota("f", "cpu")];
        let names = |all, resource: Option<&str>| {
            let shown = ShownArgs { resource: resource.map(str::to_owned), flavor: None };
            let found = EachShownArgs { shown, all }.each(&quotas);
            found.map(|found| found.iter().map(|fr| format!("{} {}", fr.resource, fr.flavor)).collect())
        };
        let each: Vec<String> = names(true, None).unwrap();
        assert_eq!(each, ["cpu f", "gpu f", "gpu g"]);
        assert_eq!(names(true, Some("gpu")).unwrap(), ["gpu f", "gpu g"]);
        assert_eq!(names(false, Some("gpu")).unwrap(), ["gpu f"]);
        assert_eq!(names(true, Some("tpu")).unwrap_err().to_string(), "no quota for tpu");
        let none = ShownArgs { resource: None, flavor: None }.one([]);
        assert_eq!(none.unwrap(), None);
    }
}
