"""`make aws`: what is assumed of AWS and no emulator shows, looked at in an account of yours; leaves nothing there."""
