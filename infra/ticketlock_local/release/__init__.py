"""`make release`: the files of a release, built from the commit that is checked out, and tried as users use them."""
