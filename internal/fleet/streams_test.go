package fleet

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"
)

func TestStreams(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for name, streams := range map[string]bool{"with": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			f, err := Start(ctx, Options{Dir: t.TempDir(), Streams: streams})
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			nc, err := f.broker.provisioner()
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			if err := bucketThere(ctx, nc); (err == nil) != streams {
				t.Errorf("the bucket: %v", err)
			}
			files, err := filepath.Glob(filepath.Join(f.Dir(), "streams", "*"))
			if err != nil || (len(files) > 0) != streams {
				t.Errorf("files %v, %v", files, err)
			}
		})
	}
}

func TestStreamsOptions(t *testing.T) {
	for _, o := range []Options{
		{Dir: t.TempDir(), Streams: true, ElectionTTL: -time.Second},
		{Dir: t.TempDir(), ElectionTTL: time.Second},
	} {
		if _, err := Start(context.Background(), o); !errors.Is(err, ErrOptions) {
			t.Errorf("%+v: %v, want ErrOptions", o, err)
		}
	}
}
