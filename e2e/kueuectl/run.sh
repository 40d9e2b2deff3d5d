#!/bin/sh
# kueuectl of the module of Kueue, and this program in its place.
#   run.sh tests [WORD]   runs the module's own tests of kueuectl with this program as kubectl-kueue
#   run.sh compare        runs each line of lines.txt with both on the cluster of KUBECONFIG, and says where they differ
# Needs Go, and etcd, kube-apiserver and kubectl in KUBEBUILDER_ASSETS (default: those that are built for `make up`).
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
version=v0.19.2
work=$root/target/kueuectl
# Refuses programs of another version in KUBEBUILDER_ASSETS, and builds those that it lacks.
(cd "$root" && "${CARGO:-cargo}" run --quiet --locked --package sluice-controlplane)
case ${KUBEBUILDER_ASSETS:=target/controlplane/bin} in
/*) ;;
*) KUBEBUILDER_ASSETS=$root/$KUBEBUILDER_ASSETS ;;
esac
export KUBEBUILDER_ASSETS
export PATH="$KUBEBUILDER_ASSETS:$PATH"
# Kueue's tests take all three from one folder.
for program in etcd kube-apiserver kubectl; do
    [ -x "$KUBEBUILDER_ASSETS/$program" ] || { echo "no $program in $KUBEBUILDER_ASSETS: add it, or unset KUBEBUILDER_ASSETS" >&2; exit 1; }
done

# A copy of the module: its tests read generated CRDs beside its sources.
if [ ! -f "$work/module/go.mod" ]; then
    mkdir -p "$work"
    module=$(cd "$root/e2e/controlplane/kueue" && go mod download -json "sigs.k8s.io/kueue@$version" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
    rm -rf "$work/module.new"
    cp -r "$module" "$work/module.new"
    chmod -R u+w "$work/module.new"
    mkdir -p "$work/module.new/config/components/crd/_output"
    kubectl kustomize "$work/module.new/config/components/crd" > "$work/module.new/config/components/crd/_output/crds-with-webhooks.yaml"
    mv "$work/module.new" "$work/module"
fi
mkdir -p "$work/ours"
ln -sf "$root/target/debug/sluice" "$work/ours/kubectl-kueue"

case ${1:-} in
tests)
    cd "$work/module/test/integration/singlecluster/kueuectl"
    [ -x "$work/kueuectl.test" ] || go test -mod=mod -c -o "$work/kueuectl.test" .
    KUEUE_BIN="$work/ours" "$work/kueuectl.test" ${2:+-ginkgo.focus="$2"}
    ;;
compare)
    [ -x "$work/kubectl-kueue" ] || (cd "$work/module" && go build -mod=mod -o "$work/kubectl-kueue" ./cmd/kueuectl)
    same=0
    different=0
    while IFS= read -r line; do
        for which in kueue ours; do
            program=$work/kubectl-kueue
            [ $which = kueue ] || program=$work/ours/kubectl-kueue
            status=0
            eval "\"$program\" $line" > "$work/$which.out" 2> "$work/$which.err" < /dev/null || status=$?
            # Ages move; what follows the error is help, which is worded differently.
            sed -E 's/[0-9]+[smhd]([0-9]+[smh])?( |$)/AGE /g; s/ +/ /g' "$work/$which.out" > "$work/$which.txt"
            head -1 "$work/$which.err" >> "$work/$which.txt"
            echo "status $status" >> "$work/$which.txt"
        done
        if cmp -s "$work/kueue.txt" "$work/ours.txt"; then
            same=$((same + 1))
        else
            different=$((different + 1))
            echo "=== $line"
            diff "$work/kueue.txt" "$work/ours.txt" | head -"${SHOW:-10}" || true
        fi
    done < "$root/e2e/kueuectl/lines.txt"
    echo "same $same, different $different (docs/kueuectl.md lists why)"
    ;;
*)
    echo "usage: $0 tests [WORD] | compare" >&2
    exit 1
    ;;
esac
