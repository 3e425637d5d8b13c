"""From a T1w image to regional volumes and RAVENS maps: functions on images, no workflow."""
