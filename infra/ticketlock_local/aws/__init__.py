"""`make aws`: checks in your account what ticketlock assumes of AWS and no emulator shows; leaves nothing there."""
