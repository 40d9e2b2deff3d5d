// Verifies a signed statement of a release by another implementation than the one that signs it: the signature of the DSSE envelope,
// and the SHA-256 of each file in the folder that the statement names.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/secure-systems-lab/go-securesystemslib/signerverifier"
)

const payloadType = "application/vnd.in-toto+json"

type statement struct {
	Subject []struct {
		Name   string            `json:"name"`
		Digest map[string]string `json:"digest"`
	} `json:"subject"`
	PredicateType string `json:"predicateType"`
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: verify PUBLIC-KEY ENVELOPE FOLDER")
		os.Exit(2)
	}
	if err := verify(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func verify(keyFile, envelopeFile, folder string) error {
	stated, err := signed(keyFile, envelopeFile)
	if err != nil {
		return fmt.Errorf("%s: %w", envelopeFile, err)
	}
	fmt.Println(stated.PredicateType)
	for _, subject := range stated.Subject {
		wanted := subject.Digest["sha256"]
		if wanted == "" {
			return fmt.Errorf("%s: no SHA-256", subject.Name)
		}
		content, err := os.ReadFile(filepath.Join(folder, filepath.Base(subject.Name)))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			fmt.Printf("%s  %s (no file of the folder)\n", wanted, subject.Name)
			continue
		case err != nil:
			return err
		}
		if found := sha256.Sum256(content); hex.EncodeToString(found[:]) != wanted {
			return fmt.Errorf("%s: its SHA-256 is %x, signed is %s", subject.Name, found, wanted)
		}
		fmt.Printf("%s  %s\n", wanted, subject.Name)
	}
	return nil
}

func signed(keyFile, envelopeFile string) (*statement, error) {
	pem, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, err
	}
	key, err := signerverifier.LoadKey(pem)
	if err != nil {
		return nil, err
	}
	verifier, err := signerverifier.NewECDSASignerVerifierFromSSLibKey(key)
	if err != nil {
		return nil, err
	}
	envelopes, err := dsse.NewEnvelopeVerifier(verifier)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(envelopeFile)
	if err != nil {
		return nil, err
	}
	var envelope dsse.Envelope
	if err := json.Unmarshal(text, &envelope); err != nil {
		return nil, err
	}
	if envelope.PayloadType != payloadType {
		return nil, fmt.Errorf("payload of the type %s", envelope.PayloadType)
	}
	if _, err := envelopes.Verify(context.Background(), &envelope); err != nil {
		return nil, fmt.Errorf("signature: %w", err)
	}
	payload, err := envelope.DecodeB64Payload()
	if err != nil {
		return nil, err
	}
	var stated statement
	if err := json.Unmarshal(payload, &stated); err != nil {
		return nil, err
	}
	if len(stated.Subject) == 0 {
		return nil, errors.New("a statement about nothing")
	}
	return &stated, nil
}
