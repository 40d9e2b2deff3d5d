//! Owners of an object under review.

use super::{OwnerRef, OwnerView, ReviewContext};
use crate::api::selector::matches;
use crate::frameworks::{
    Above, AncestryError, End, FoundOwner, Framework, ManagedKinds, OwnPlace, OwnerLookup, Role, Searched,
    framework, search_above, search_maker,
};

/// Returns what stands above an object in a namespace.
///
/// # Errors
/// The owner references are cyclic or too deep.
pub fn objects_above(
    ctx: &ReviewContext<'_>,
    namespace: &str,
    object: Searched<'_>,
) -> Result<Above, AncestryError> {
    search_above(object, &ctx.settings.managed_kinds(), |owner| look_up(ctx, namespace, owner))
}

/// Returns the nearest controller that names a queue and has made an object in a namespace, directly or by what it makes, and where the
/// known controllers end.
///
/// # Errors
/// The owner references are cyclic or too deep.
pub(super) fn maker_above(
    ctx: &ReviewContext<'_>,
    namespace: &str,
    object: Searched<'_>,
) -> Result<(Option<OwnerRef>, End), AncestryError> {
    search_maker(object, &ctx.settings.managed_kinds(), |owner| look_up(ctx, namespace, owner))
}

fn look_up(ctx: &ReviewContext<'_>, namespace: &str, owner: &OwnerRef) -> OwnerLookup {
    let (settings, objects) = (ctx.settings, ctx.objects);
    let kinds = settings.managed_kinds();
    let Some(view) = objects.owner(namespace, owner) else {
        return if is_read(ctx, owner, &kinds) { OwnerLookup::Missing } else { OwnerLookup::Unread };
    };
    // In a namespace that is so new that it is not known, its objects count as managed.
    let labels = objects.namespace_labels(namespace);
    let selected = labels.is_none_or(|labels| matches(&settings.managed_namespaces, labels));
    let unnamed = settings.manage_jobs_without_queue_name && selected;
    OwnerLookup::Found(found(owner, view, &kinds, unnamed))
}

/// Returns whether all objects of the kind of an owner are known, in the version that its reference names, but for those so new that
/// the watch has not delivered them. Of pods and of external kinds only those are known that can lead to a queue.
fn is_read(ctx: &ReviewContext<'_>, owner: &OwnerRef, kinds: &ManagedKinds<'_>) -> bool {
    let row = framework(owner.group(), &owner.kind);
    let passes = ctx.settings.passing.contains(&(owner.group(), owner.kind.as_str()));
    let in_version = row.is_none_or(|row| row.gvk.api_version() == owner.api_version);
    let waits = !row.is_some_and(Framework::is_pod) || !ctx.objects.knows_pods();
    waits && !ctx.objects.is_unread(owner) && in_version && (passes || kinds.is_enabled(owner))
}

/// Returns an owner in the terms of the search. `unnamed` says whether objects without a queue name are managed.
fn found(owner: &OwnerRef, view: OwnerView, kinds: &ManagedKinds<'_>, unnamed: bool) -> FoundOwner {
    let names_queue = view.queue_name.is_some_and(|name| !name.is_empty());
    let row = framework(owner.group(), &owner.kind);
    let asks = names_queue || (unnamed && !row.is_some_and(Framework::is_pod));
    let managed = || kinds.is_external(owner) || (kinds.is_enabled(owner) && !passes_through(row));
    let place = match view.place {
        OwnPlace::Nowhere if asks && managed() => OwnPlace::Queued,
        place => place,
    };
    FoundOwner { uid: view.uid, names_queue, place, controller: view.controller }
}

fn passes_through(row: Option<&Framework>) -> bool {
    row.is_some_and(|row| row.role == Role::PassThrough)
}
