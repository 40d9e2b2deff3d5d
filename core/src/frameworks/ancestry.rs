//! Search for what stands above an object: the highest queued object on whose quota it runs, or for which it waits.
//!
//! The search follows controller references through every object that is known, whether its kind is queued, only read, or makes no
//! such objects, and says where it ends. Owner references are written by users and not trusted. So an object that names a queue
//! runs on the quota of another one only if each controller between them creates such objects (`ManagedKinds::creates`); an object
//! that names none waits for what its controller waits for.
//!
//! Invariants: the search terminates for any owner references; webhooks and reconciler ask this one function; an object that cannot
//! be seen is never above another one.

use super::OwnerRef;
use super::managed_kinds::{ManagedKinds, is_pod};
use super::row::CreatedKinds;
use std::collections::BTreeSet;
use std::fmt;

/// Maximum number of objects on the path, including the job.
const DEPTH_LIMIT: usize = 10;

/// Result of looking up the object of an owner reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnerLookup {
    /// Objects of its kind, or of the version that the reference names, are not read.
    Unread,
    /// Objects of its kind are read, and none has the name: it is new, or gone.
    Missing,
    /// An object with the name was found.
    Found(FoundOwner),
}

/// What is known of an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundOwner {
    /// UID of the object as stored.
    pub uid: String,
    /// Whether it names a queue.
    pub names_queue: bool,
    /// Its own place in a queue.
    pub place: OwnPlace,
    /// Its controller owner.
    pub controller: Option<OwnerRef>,
}

/// Whether an object is queued itself, if nothing is queued in its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OwnPlace {
    /// It has no Workload: it is in no queue, or its pods are queued one by one.
    #[default]
    Nowhere,
    /// It has a Workload, or will get one.
    Queued,
    /// Its Workloads have finished. What names no queue still waits for it.
    Over,
}

/// What stands above an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Above {
    /// This object is queued in its place.
    Queued(OwnerRef),
    /// Nothing is, as far as can be seen.
    Nothing(End),
}

/// Where a search ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// At an object without a controller, or whose controller was replaced by another object of its name.
    Top,
    /// At a controller whose objects are not read.
    Unread(OwnerRef),
    /// At a controller that is not there, or not yet.
    Missing(OwnerRef),
}

/// Why the search failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AncestryError {
    /// The owner references form a cycle.
    Cycle,
    /// The path is longer than `DEPTH_LIMIT`.
    TooDeep,
}

impl fmt::Display for AncestryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cycle => f.write_str("metadata.ownerReferences: the controller owners form a cycle"),
            Self::TooDeep => {
                write!(
                    f,
                    "metadata.ownerReferences: more than {DEPTH_LIMIT} controller owners above each other"
                )
            }
        }
    }
}

impl Above {
    /// Returns the object that is queued in the place of the one below.
    pub fn queued(self) -> Option<OwnerRef> {
        match self {
            Self::Queued(owner) => Some(owner),
            Self::Nothing(_) => None,
        }
    }
}

/// The object from which a search starts.
#[derive(Clone, Copy, Debug)]
pub struct Searched<'a> {
    /// Its kind as (group, kind).
    pub kind: (&'a str, &'a str),
    /// Its UID; empty before it is stored.
    pub uid: &'a str,
    /// Whether it names a queue itself.
    pub names_queue: bool,
    /// Its controller owner.
    pub controller: Option<&'a OwnerRef>,
}

/// A controller on the path.
struct Level {
    owner: OwnerRef,
    found: FoundOwner,
    /// Whether it creates objects such as the one below it.
    creates_lower: bool,
}

/// The object on whose quota another one runs.
#[derive(Clone, Copy)]
struct Holder {
    level: usize,
    /// Whether each controller from there down to the other one creates such objects.
    made: bool,
}

/// Returns what stands above an object. An object with the name but not the UID of the owner ends the search.
///
/// # Errors
/// The owner references form a cycle or are too deep.
pub fn search_above(
    object: Searched<'_>,
    kinds: &ManagedKinds<'_>,
    lookup: impl Fn(&OwnerRef) -> OwnerLookup,
) -> Result<Above, AncestryError> {
    let (mut levels, end) = climb(object, lookup)?;
    mark_creators(&mut levels, object.kind, kinds);
    let mut holder = None;
    let mut is_over = false;
    for (number, level) in levels.iter().enumerate().rev() {
        let names = level.found.names_queue;
        holder = number
            .checked_add(1)
            .and_then(|above| levels.get(above))
            .map_or(holder, |above| passed_down(holder, above.creates_lower && !is_over, names));
        if holder.is_none() && level.found.place != OwnPlace::Nowhere {
            is_over = level.found.place == OwnPlace::Over;
            holder = Some(Holder { level: number, made: true });
        }
    }
    let creates = levels.first().is_some_and(|level| level.creates_lower);
    let holder = passed_down(holder, creates && !is_over, object.names_queue);
    let owner = holder.and_then(|holder| levels.into_iter().nth(holder.level));
    Ok(owner.map_or(Above::Nothing(end), |level| Above::Queued(level.owner)))
}

/// Returns the nearest controller above an object that names a queue, if each controller from there down creates such objects as the one
/// below it, and where the known controllers end. An object with the name but not the UID of the owner ends the search.
///
/// # Errors
/// The owner references form a cycle or are too deep.
pub fn search_maker(
    object: Searched<'_>,
    kinds: &ManagedKinds<'_>,
    lookup: impl Fn(&OwnerRef) -> OwnerLookup,
) -> Result<(Option<OwnerRef>, End), AncestryError> {
    let (mut levels, end) = climb(object, lookup)?;
    mark_creators(&mut levels, object.kind, kinds);
    let mut makers = levels.into_iter().take_while(|level| level.creates_lower);
    let maker = makers.find(|level| level.found.names_queue).map(|level| level.owner);
    Ok((maker, end))
}

/// Returns on whose quota an object runs whose controller runs on that of `holder`. One that names a queue needs quota of its own
/// unless it was made for the holder.
fn passed_down(holder: Option<Holder>, created: bool, names_queue: bool) -> Option<Holder> {
    let Holder { level, made } = holder?;
    let made = made && created;
    (made || !names_queue).then_some(Holder { level, made })
}

/// Returns the known controllers above an object, the nearest first, and where they end.
fn climb(
    object: Searched<'_>,
    lookup: impl Fn(&OwnerRef) -> OwnerLookup,
) -> Result<(Vec<Level>, End), AncestryError> {
    let mut seen = BTreeSet::from([object.uid.to_owned()]);
    let mut levels = Vec::new();
    let mut next = object.controller.cloned();
    while let Some(owner) = next.take() {
        let found = match lookup(&owner) {
            OwnerLookup::Unread => return Ok((levels, End::Unread(owner))),
            OwnerLookup::Missing => return Ok((levels, End::Missing(owner))),
            OwnerLookup::Found(found) if found.uid != owner.uid => break,
            OwnerLookup::Found(found) => found,
        };
        if !seen.insert(found.uid.clone()) {
            return Err(AncestryError::Cycle);
        }
        if seen.len() > DEPTH_LIMIT {
            return Err(AncestryError::TooDeep);
        }
        next.clone_from(&found.controller);
        levels.push(Level { owner, found, creates_lower: false });
    }
    Ok((levels, End::Top))
}

/// Marks the controllers that create objects such as the one below them. A pod may be named as the controller by what another
/// controller makes for it, as the StatefulSet of the workers by the leader pod of a LeaderWorkerSet: then a controller above the
/// pod must list the kind.
fn mark_creators(levels: &mut [Level], object: (&str, &str), kinds: &ManagedKinds<'_>) {
    for number in (0..levels.len()).rev() {
        let below = number.checked_sub(1).and_then(|below| levels.get(below));
        let owned = below.map_or(object, |below| (below.owner.group(), below.owner.kind.as_str()));
        let creates = levels.get(number..).is_some_and(|from| creates(from, owned, kinds));
        if let Some(level) = levels.get_mut(number) {
            level.creates_lower = creates;
        }
    }
}

/// Returns whether the first of these controllers creates objects of a kind, or is a pod for which one above it does.
fn creates(from: &[Level], owned: (&str, &str), kinds: &ManagedKinds<'_>) -> bool {
    let Some((first, above)) = from.split_first() else { return false };
    if kinds.creates(&first.owner, owned) {
        return true;
    }
    let mut makers = above.iter().take_while(|level| level.creates_lower);
    let lists = |level: &Level| match kinds.created_by(&level.owner) {
        Some(CreatedKinds::Only(created)) => created.contains(&owned),
        Some(CreatedKinds::Any) | None => false,
    };
    is_pod(&first.owner) && makers.any(lists)
}

/// Says that an owner was not found.
pub fn missing_owner(owner: &OwnerRef) -> String {
    format!(
        "metadata.ownerReferences: the owner {} {} of {} was not found",
        owner.kind, owner.name, owner.api_version
    )
}

#[cfg(test)]
mod tests {
    use super::super::row_parts::{JOB, POD};
    use super::super::table::frameworks;
    use super::*;
    use std::collections::BTreeMap;

    /// An object of a chain: its kind, its place in a queue, and whether it names one.
    #[derive(Clone, Copy)]
    struct Object(&'static str, OwnPlace, bool);

    const NOWHERE: OwnPlace = OwnPlace::Nowhere;
    const QUEUED: OwnPlace = OwnPlace::Queued;
    const OVER: OwnPlace = OwnPlace::Over;

    fn kind_of(name: &str) -> (&'static str, &'static str) {
        if name == "ReplicaSet" {
            return ("apps", "ReplicaSet");
        }
        let row = frameworks().find(|row| row.gvk.kind == name);
        row.map_or(("example.com", "Foo"), |row| (row.gvk.group, row.gvk.kind))
    }

    /// Returns the reference to the object at a position of a chain, with its number as name.
    fn owner(kind: &str, number: usize) -> OwnerRef {
        let (group, kind) = kind_of(kind);
        let api_version = if group.is_empty() { "v1".to_owned() } else { format!("{group}/v1") };
        OwnerRef {
            api_version,
            kind: kind.to_owned(),
            name: number.to_string(),
            uid: format!("uid-{number}"),
        }
    }

    /// Searches from an object of a kind below a chain, whose nearest object comes first. Returns the number of the object that is
    /// queued in its place.
    fn search(kind: &str, names_queue: bool, chain: &[Object]) -> Option<usize> {
        search_both(kind, names_queue, chain)[0]
    }

    /// The same, and the number of the nearest object in a queue that has made the first one.
    fn search_both(kind: &str, names_queue: bool, chain: &[Object]) -> [Option<usize>; 2] {
        let all: BTreeSet<String> = frameworks().map(|row| row.name.to_owned()).collect();
        let external = BTreeSet::from([("example.com".to_owned(), "Foo".to_owned())]);
        let kinds = ManagedKinds { frameworks: &all, external: &external };
        let references: Vec<OwnerRef> =
            chain.iter().enumerate().map(|(number, object)| owner(object.0, number)).collect();
        let found: BTreeMap<String, FoundOwner> = references
            .iter()
            .zip(chain)
            .enumerate()
            .map(|(number, (reference, object))| {
                let controller = references.get(number + 1).cloned();
                let found = FoundOwner {
                    uid: reference.uid.clone(),
                    names_queue: object.2,
                    place: object.1,
                    controller,
                };
                (reference.name.clone(), found)
            })
            .collect();
        let object = Searched { kind: kind_of(kind), uid: "me", names_queue, controller: references.first() };
        let lookup = |owner: &OwnerRef| OwnerLookup::Found(found[&owner.name].clone());
        let queued = search_above(object, &kinds, lookup).unwrap().queued();
        let (maker, end) = search_maker(object, &kinds, lookup).unwrap();
        assert_eq!(end, End::Top);
        [queued, maker].map(|owner| owner.map(|owner| owner.name.parse().unwrap()))
    }

    #[test]
    fn what_a_job_runs_on() {
        let queued = |kind| Object(kind, QUEUED, true);
        let plain = |kind| Object(kind, NOWHERE, false);
        let cases: &[(&str, bool, &[Object], Option<usize>)] = &[
            // The highest counts.
            ("Job", true, &[queued("JobSet"), queued("AppWrapper")], Some(1)),
            ("Job", true, &[queued("JobSet"), plain("AppWrapper")], Some(0)),
            ("Job", true, &[plain("JobSet"), plain("AppWrapper")], None),
            ("Job", false, &[plain("JobSet"), queued("TrainJob")], Some(1)),
            // A controller that makes no such objects exempts nothing from a queue, but what names none waits for it.
            ("Job", true, &[queued("Job")], None),
            ("Job", false, &[queued("Job")], Some(0)),
            ("Job", false, &[plain("Job"), plain("Job"), queued("Job")], Some(2)),
            ("Pod", true, &[plain("Job"), plain("Job"), queued("Job")], None),
            ("Pod", true, &[queued("Job"), queued("Job")], Some(0)),
            ("Pod", false, &[plain("Job"), queued("Job")], Some(1)),
            ("Job", false, &[Object("Job", QUEUED, false), queued("Job")], Some(1)),
            ("JobSet", false, &[queued("PyTorchJob")], Some(0)),
            // Objects in between that are never queued.
            ("Pod", true, &[plain("ReplicaSet"), plain("Deployment"), queued("AppWrapper")], Some(2)),
            ("Pod", true, &[plain("ReplicaSet"), Object("Deployment", NOWHERE, true)], None),
            ("Pod", true, &[plain("ReplicaSet"), Object("Deployment", NOWHERE, true), queued("Job")], None),
            ("Job", false, &[Object("Deployment", NOWHERE, true), queued("AppWrapper")], Some(1)),
            ("Job", false, &[Object("Deployment", NOWHERE, true)], None),
            (
                "Pod",
                true,
                &[plain("StatefulSet"), plain("Pod"), plain("StatefulSet"), queued("LeaderWorkerSet")],
                Some(3),
            ),
            ("Job", true, &[plain("Pod"), queued("Job"), queued("AppWrapper")], None),
            ("Pod", true, &[plain("Pod"), queued("SparkApplication")], Some(1)),
            // External kinds.
            ("Job", true, &[queued("Foo")], Some(0)),
            ("Job", true, &[Object("Foo", OVER, false)], None),
            ("Job", false, &[Object("Foo", OVER, false)], Some(0)),
            ("Pod", true, &[Object("Job", QUEUED, true), Object("Foo", OVER, false)], Some(0)),
        ];
        for (number, (kind, names, chain, expected)) in cases.iter().enumerate() {
            assert_eq!(search(kind, *names, chain), *expected, "case {number}: {kind}");
        }
    }

    #[test]
    fn makers_are_the_nearest_in_a_queue() {
        let named = |kind| Object(kind, NOWHERE, true);
        let plain = |kind| Object(kind, NOWHERE, false);
        let cases: &[(&[Object], Option<usize>)] = &[
            (&[plain("ReplicaSet"), named("Deployment")], Some(1)),
            (&[plain("ReplicaSet"), named("Deployment"), named("AppWrapper")], Some(1)),
            (&[plain("ReplicaSet"), plain("Deployment"), named("AppWrapper")], Some(2)),
            (&[plain("ReplicaSet"), plain("Deployment")], None),
            // A controller that makes no such objects has not made it.
            (&[plain("ReplicaSet"), named("Job")], None),
            (&[named("Deployment")], None),
            (&[], None),
        ];
        for (number, (chain, expected)) in cases.iter().enumerate() {
            assert_eq!(search_both("Pod", true, chain)[1], *expected, "case {number}");
        }
    }

    #[test]
    fn search_ends_and_says_where() {
        let all: BTreeSet<String> = frameworks().map(|row| row.name.to_owned()).collect();
        let external = BTreeSet::new();
        let kinds = ManagedKinds { frameworks: &all, external: &external };
        let first = owner("Job", 0);
        let from = |lookup: &dyn Fn(&OwnerRef) -> OwnerLookup| {
            let object = Searched { kind: JOB, uid: "me", names_queue: true, controller: Some(&first) };
            search_above(object, &kinds, lookup)
        };
        let found = |uid: &str, above: Option<usize>| {
            OwnerLookup::Found(FoundOwner {
                uid: uid.to_owned(),
                names_queue: false,
                place: NOWHERE,
                controller: above.map(|number| owner("Job", number)),
            })
        };
        assert_eq!(from(&|_| OwnerLookup::Missing), Ok(Above::Nothing(End::Missing(first.clone()))));
        assert_eq!(from(&|_| OwnerLookup::Unread), Ok(Above::Nothing(End::Unread(first.clone()))));
        assert_eq!(from(&|_| found("another", None)), Ok(Above::Nothing(End::Top)), "another of its name");
        assert_eq!(from(&|_| found("uid-0", None)), Ok(Above::Nothing(End::Top)));
        let number = |owner: &OwnerRef| owner.name.parse::<usize>().unwrap();
        let cycle = |owner: &OwnerRef| found(&owner.uid, Some((number(owner) + 1) % 3));
        assert_eq!(from(&cycle), Err(AncestryError::Cycle));
        let long = |owner: &OwnerRef| found(&owner.uid, Some(number(owner) + 1));
        assert_eq!(from(&long), Err(AncestryError::TooDeep));
        let pod = Searched { kind: POD, uid: "me", names_queue: true, controller: Some(&first) };
        let maker = search_maker(pod, &kinds, |_| OwnerLookup::Missing);
        assert_eq!(maker, Ok((None, End::Missing(first.clone()))));
        assert_eq!(search_maker(pod, &kinds, |_| found("another", None)), Ok((None, End::Top)));
        assert!(kinds.creates(&first, POD));
    }
}
