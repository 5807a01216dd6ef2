package world

import "context"

func (w *World) capture(ctx context.Context) error { return nil }
