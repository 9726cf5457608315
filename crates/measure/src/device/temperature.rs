//! The temperature of a block device, if its driver tells it to hwmon (nvme since Linux 5.5, drivetemp for SATA since
//! 5.6).

use std::path::Path;

use super::directory::names_in;
use crate::fact::{self, Fact};

/// Reads `temp1_input` of the device, in thousandths of a degree Celsius. NVMe has `hwmonN` in the directory of its
/// controller, SATA has it in `hwmon`.
pub(super) fn millidegrees(disk: &Path) -> Fact<i64> {
    let device = disk.join("device");
    let found = [device.clone(), device.join("hwmon")].into_iter().find_map(|directory| {
        let names = names_in(&directory).into_iter().filter(|name| name.starts_with("hwmon"));
        names.map(|name| directory.join(name).join("temp1_input")).find(|path| path.exists())
    });
    match found {
        Some(path) => fact::value(&path),
        None => {
            let name = disk.file_name().unwrap_or_default().to_string_lossy();
            Fact::Unknown(format!("{name}: no hwmon tells its temperature"))
        }
    }
}
