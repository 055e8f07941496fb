"""The page on engines that Playwright does not drive here: an installed Firefox and WebKitGTK."""
