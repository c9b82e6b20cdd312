//! A small disk that tests can fill.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A tmpfs, unmounted on drop. Drop it after the processes that use it.
pub(crate) struct Disk(PathBuf);

impl Disk {
    /// Returns `None` if this process may not mount file systems.
    pub(crate) fn mount(path: &Path, megabytes: u32) -> Option<Self> {
        fs::create_dir(path).expect("a directory");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={megabytes}m,mode=755"), "tmpfs"]).arg(path);
        let mounted = mount.stderr(Stdio::null()).status().is_ok_and(|status| status.success());
        mounted.then(|| Self(path.to_owned()))
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a ballast file until no space is left; returns its size in bytes.
    pub(crate) fn fill(&self) -> usize {
        let (mut ballast, mut taken) = (File::create(self.join("ballast")).expect("a file"), 0);
        for size in [1 << 20, 1 << 12] {
            let block = vec![0; size];
            while ballast.write_all(&block).is_ok() {
                taken += size;
            }
        }
        taken
    }

    /// Deletes the ballast file.
    pub(crate) fn free(&self) {
        fs::remove_file(self.join("ballast")).expect("removed");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
